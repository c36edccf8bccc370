// Runs short Programs in the page itself, because two messages would take longer (docs/design/sessions.md#runs-in-the-page).

import { env } from 'onnxruntime-common';
import { OutOfMemory, UnsupportedSizes } from '../../common/errors.js';
import { programKey } from '../../common/flat_feeds.js';
import { mapValues } from '../../common/records.js';
import { fastest } from '../../runtime/trial.js';
import { pageThreads } from '../engine/client.js';
import { executorCode } from '../executor/load_code.js';

/** @import { Portable, WireValue } from '../../common/protocol.js' */
/** @import { Executor } from '../../run/executor.js' */
/** @import { Tensor } from 'onnxruntime-common' */
/** @typedef {Record<string, Tensor | Tensor[] | null>} Feeds */
/** @typedef {{ key: string, needs: import('../../common/protocol.js').Needs | null, executor: Executor }} Entry */

const SHORT = 3; // longest short run in the worker, in ms: a message each way takes 0.3 and more, a 60 Hz frame 16.7
const LONG = 8; // longest run in the page in ms
const RUNS = 3; // short runs before the page gets the Program; long ones before runs return to the worker
const WARM = 60; // the same number of short runs if threads may join, which need fifty runs (run/executor.js)
const LAPSE = 5; // a longer run cancels this many short ones, not all: it may have lost its core for some milliseconds
const TRIAL = 32; // runs in the page before their mean is compared with that of runs in the worker
const RECENT = 0.25; // weight of the latest run in a mean
const GROWTH = 2; // feeds larger by this factor than those of short runs go to the worker first
const MAX_ENTRIES = 4; // most Programs; the oldest is dropped first
const [PAGE, WORKER] = [0, 1];

/** The Programs of one session in the page. */
export class PageRunner {
  /** @type {Entry[]} */
  entries = [];
  /** Counts of short runs in the worker, and of consecutive long runs in the page. */
  short = 0;
  long = 0;
  /** Elements of the largest feeds of a short run. */
  elements = 0;
  /** Recent mean milliseconds of runs in the page and in the worker, including messages. */
  means = [0, 0];
  trial = 0; // runs in the page
  isFetching = false;
  /** Counts of memory plans, summed over all executors. @type {import('../../runtime/planner.js').PlanCounts | null} */
  counts = null;
  isRefused = false; // whether all runs stay in the worker

  /** @param {() => Promise<Portable | null>} fetch gets the Program of the latest run @param {number} threads of the session */
  constructor(fetch, threads) {
    this.fetch = fetch;
    this.threads = threads;
    this.enough = threads > 1 ? WARM : RUNS;
  }

  /**
   * @param {Feeds} feeds of a run in the worker @param {number} milliseconds of the run @param {number} trip milliseconds of run and messages
   */
  countWorkerRun(feeds, milliseconds, trip) {
    this.note(WORKER, trip);
    if (milliseconds > SHORT) return void (this.short = Math.max(0, this.short - LAPSE));
    this.short++;
    this.elements = Math.max(this.elements, elementsOf(feeds));
    if (this.short >= this.enough && !this.isFetching && !this.isRefused && !env.wasm.proxy && !this.match(feeds)) this.fetchProgram();
  }

  /** @param {number} place @param {number} time in milliseconds */
  note(place, time) {
    const mean = this.means[place] || time;
    this.means[place] = mean + RECENT * (time - mean);
  }

  /** Gets the Program while runs continue in the worker. If the worker gives none, the session stays in the worker. */
  async fetchProgram() {
    this.isFetching = true;
    const portable = await this.fetch().catch(() => null);
    if (!portable || !(await this.add(portable).catch(() => false))) this.isRefused = true;
    this.isFetching = false;
  }

  /** @param {Portable} portable @returns {Promise<boolean>} whether it is used */
  async add({ key, needs, program, weights, shared }) {
    const read = (/** @type {number} */ offset, /** @type {number} */ _size, source = '') => (
      /** @type {Uint8Array} */ (weights.get(`${source}:${offset}`)));
    const { Executor, ThreadPool } = await executorCode();
    const host = { shared, threads: this.threads, pool: pageThreads(ThreadPool) };
    const executor = await Executor.create({ ...program, python: null }, read, null, host);
    executor.plan.counts = this.counts ??= executor.plan.counts;
    executor.warm = Infinity; // V8 shares optimised code with the worker
    if (this.isRefused) executor.release();
    else this.entries.push({ key, needs, executor });
    if (this.entries.length > MAX_ENTRIES) this.entries.shift()?.executor.release();
    return true;
  }

  /**
   * @param {Feeds} feeds @param {Record<string, Tensor | null>} fetches
   * @returns {Executor | null} of a Program in the page that serves them
   */
  find(feeds, fetches) {
    if (!this.entries.length || env.wasm.proxy || elementsOf(feeds) > GROWTH * this.elements) return null;
    const tensors = [...Object.values(feeds).flat(), ...Object.values(fetches)];
    if (!tensors.every((tensor) => !tensor || tensor.location.startsWith('cpu'))) return null;
    const executor = this.match(feeds)?.executor;
    return executor?.canRun(feeds, Object.keys(fetches)) ? executor : null;
  }

  /** Finds the Program for these feeds. @param {Feeds} feeds */
  match(feeds) {
    const wire = /** @type {Record<string, WireValue>} */ (/** @type {unknown} */ (feeds));
    return this.entries.find(({ key, needs }) => key === programKey(wire, needs));
  }

  /**
   * The results; null if the worker has to run these feeds: the Program refuses their sizes, or memory is full. Then later runs return
   * there, too, because the worker can free memory of other sessions.
   * @param {Executor} executor @param {Feeds} feeds @param {Record<string, Tensor | null>} fetches
   * @returns {Record<string, WireValue> | null}
   */
  tryRun(executor, feeds, fetches) {
    try {
      return this.run(executor, feeds, fetches);
    } catch (error) {
      if (error instanceof UnsupportedSizes) return null;
      if (!(error instanceof OutOfMemory)) throw error;
      this.release();
      return null;
    }
  }

  /**
   * @param {Executor} executor @param {Feeds} feeds @param {Record<string, Tensor | null>} fetches
   * @returns {Record<string, WireValue>}
   */
  run(executor, feeds, fetches) {
    const start = performance.now();
    const wire = /** @type {Record<string, WireValue>} */ (/** @type {unknown} */ (feeds));
    const results = executor.run(wire, mapValues(fetches, (into) => into && target(into)));
    this.countPageRun(performance.now() - start);
    return /** @type {Record<string, WireValue>} */ (results); // no promises: only a GPU makes runs wait
  }

  /**
   * Returns to the worker if runs are long, or if they were shorter in the worker.
   * @param {number} milliseconds of a run in the page
   */
  countPageRun(milliseconds) {
    this.note(PAGE, milliseconds);
    this.long = milliseconds > LONG ? this.long + 1 : 0;
    if (this.long >= RUNS) this.clear();
    else if (++this.trial === TRIAL && fastest(this.means, 1) === WORKER) this.release();
  }

  /** Bytes of linear memory in the page. */
  bytes() {
    return this.entries.reduce((sum, { executor }) => sum + executor.arenaBytes(), 0);
  }

  /** Runs return to the worker until they are short again. */
  clear() {
    for (const { executor } of this.entries) executor.release();
    this.entries = [];
    this.short = this.long = this.elements = 0;
  }

  /** Runs return to the worker for good. */
  release() {
    this.isRefused = true;
    this.clear();
  }
}

/** @param {Feeds} feeds */
function elementsOf(feeds) {
  return Object.values(feeds).flat().reduce((sum, tensor) => sum + (tensor?.size ?? 0), 0);
}

/** @param {Tensor} into @returns {import('../../common/protocol.js').WireTensor | null} null: strings are copied after the run */
function target({ type, dims, data }) {
  return Array.isArray(data) ? null : { type, dims, data: /** @type {import('../../common/protocol.js').NumericData} */ (data) };
}
