// Programs so short that two messages take longer run in the page itself (docs/design/sessions.md#runs-in-the-page).

import { env } from 'onnxruntime-common';
import { pageThreads } from '../engine/client.js';
import { Executor } from '../../run/executor.js';
import { programKey } from '../../common/flat_feeds.js';

/** @typedef {import('onnxruntime-common').Tensor} Tensor */
/** @typedef {import('../../common/protocol.js').Portable} Portable */
/** @typedef {import('../../common/protocol.js').WireValue} WireValue */
/** @typedef {Record<string, Tensor | Tensor[] | null>} Feeds */
/** @typedef {{ key: string, needs: import('../../common/protocol.js').Needs | null, executor: Executor }} Entry */

const SHORT = 3; // ms of a run in the worker; waking it and the page takes 0.3 ms and more, a frame of 60 Hz has 16.7 ms
const LONG = 8; // ms of a run in the page
const RUNS = 3; // that decide
const WARM = 60; // instead where threads may join: they need fifty (executor.js)
const LAPSE = 5; // short runs that a longer one undoes: a run may lose its core for some milliseconds
const TRIED = 32; // runs in the page before they are compared with those in the worker
const RECENT = 0.25; // weight of the newest in a mean
const GROWTH = 2; // feeds larger than those known to be short by this factor are tried in the worker first
const ENTRIES = 4; // Programs, before the oldest is forgotten

/** The Programs of one session that run in the page. */
export class PageRunner {
  /** @param {() => Promise<Portable | null>} ask for the Program that ran last @param {number} threads of the session */
  constructor(ask, threads) {
    this.ask = ask;
    this.threads = threads;
    this.enough = threads > 1 ? WARM : RUNS;
    /** @type {Entry[]} */
    this.entries = [];
    this.short = 0;
    this.long = 0;
    this.elements = 0;
    /** Milliseconds as the page sees them, recent means: in the worker, and here. */
    this.there = 0;
    this.here = 0;
    this.tried = 0;
    this.asking = false;
    this.isRefused = false;
  }

  /** A run in the worker. @param {Feeds} feeds @param {number} milliseconds @param {number} trip with the messages */
  countWorkerRun(feeds, milliseconds, trip) {
    this.there = mean(this.there, trip);
    if (milliseconds > SHORT) return void (this.short = Math.max(0, this.short - LAPSE));
    this.short++;
    this.elements = Math.max(this.elements, elementsOf(feeds));
    if (this.short >= this.enough && !this.asking && !this.isRefused && !env.wasm.proxy && !this.match(feeds)) this.fetchProgram();
  }

  /** Brings the Program here while runs go on in the worker, and for good where it cannot be brought. */
  async fetchProgram() {
    this.asking = true;
    try {
      const portable = await this.ask();
      if (portable) await this.add(portable);
      else this.isRefused = true;
    } catch {
      this.isRefused = true;
    }
    this.asking = false;
  }

  /** @param {Portable} portable */
  async add({ key, needs, program, weights, shared }) {
    const read = (/** @type {number} */ offset, /** @type {number} */ _size, source = '') => /** @type {Uint8Array} */ (weights.get(`${source}:${offset}`));
    const host = { shared, threads: this.threads, pool: pageThreads() };
    const executor = await Executor.create({ ...program, python: null }, read, null, host);
    executor.warm = Infinity; // the worker's code, which V8 shares, is
    if (this.isRefused) return executor.release();
    this.entries.push({ key, needs, executor });
    if (this.entries.length > ENTRIES) this.entries.shift()?.executor.release();
  }

  /** What runs these feeds here, if anything does. @param {Feeds} feeds @param {Record<string, Tensor | null>} fetches @returns {Executor | null} */
  find(feeds, fetches) {
    if (!this.entries.length || env.wasm.proxy || elementsOf(feeds) > GROWTH * this.elements) return null;
    const tensors = [...Object.values(feeds).flat(), ...Object.values(fetches)];
    if (!tensors.every((tensor) => !tensor || tensor.location.startsWith('cpu'))) return null;
    return this.match(feeds)?.executor ?? null;
  }

  /** The Program for these feeds. @param {Feeds} feeds */
  match(feeds) {
    const wire = /** @type {Record<string, WireValue>} */ (/** @type {unknown} */ (feeds));
    return this.entries.find(({ key, needs }) => key === programKey(wire, needs));
  }

  /**
   * @param {Executor} executor @param {Feeds} feeds @param {Record<string, Tensor | null>} fetches
   * @returns {Record<string, WireValue>}
   */
  run(executor, feeds, fetches) {
    const start = performance.now();
    const wire = /** @type {Record<string, WireValue>} */ (/** @type {unknown} */ (feeds));
    const results = executor.run(wire, Object.fromEntries(Object.entries(fetches).map(([name, into]) => [name, into && target(into)])));
    this.judge(performance.now() - start);
    return /** @type {Record<string, WireValue>} */ (results); // without a GPU nothing waits
  }

  /** Whether the Program stays. @param {number} milliseconds of a run here */
  judge(milliseconds) {
    this.here = mean(this.here, milliseconds);
    this.long = milliseconds > LONG ? this.long + 1 : 0;
    if (this.long >= RUNS) this.clear();
    else if (++this.tried === TRIED && this.here > this.there) this.release();
  }

  /** Bytes of linear memory in the page. */
  bytes() {
    return this.entries.reduce((sum, { executor }) => sum + executor.arenaBytes(), 0);
  }

  /** Back to the worker. */
  clear() {
    for (const { executor } of this.entries) executor.release();
    this.entries = [];
    this.short = this.long = this.elements = 0;
  }

  release() {
    this.isRefused = true;
    this.clear();
  }
}

/** @param {number} before 0: nothing yet @param {number} newest */
const mean = (before, newest) => (before ? before + RECENT * (newest - before) : newest);

/** @param {Feeds} feeds */
function elementsOf(feeds) {
  return Object.values(feeds).flat().reduce((sum, tensor) => sum + (tensor?.size ?? 0), 0);
}

/** @param {Tensor} into @returns {import('../../common/protocol.js').WireTensor | null} strings are copied after the run */
function target({ type, dims, data }) {
  return Array.isArray(data) ? null : { type, dims, data: /** @type {import('../../common/protocol.js').NumericData} */ (data) };
}
