// Runs requests together, along the batch dim of a model. Twin of pyruntime/api/batcher.py.

import { BatchLayout, Gatherer } from '../runtime/batching.js';
import { optionsOf } from '../common/records.js';
import { copyBlock, emptyData, partsOf, product } from './parts.js';

/** @typedef {import('./parts.js').Session} Session */
/** @import { Tensor } from './parts.js' */
/** @typedef {Record<string, Tensor>} Feeds */
/**
 * signal: stops it; adapters: of its run; rows: number of its rows; stopped: whether its signal is aborted; end: ends the watch of the signal.
 * @typedef {{ feeds: Feeds, dims: Map<string, number[]>, rows: number, signal?: AbortSignal, adapters?: Adapters, stopped: boolean, end: () => void,
 *   resolve: (results: Record<string, Tensor>) => void, reject: (error: unknown) => void }} Request
 */
/** Names of a run's adapters, or weights by name. @typedef {string | readonly string[] | Readonly<Record<string, number>>} Adapters */
/** @typedef {{ size?: number, wait?: number, pad?: Record<string, number | bigint | string>, dim?: string, outputs?: readonly string[] }} Options */

export class Batcher {
  /** @type {Map<number, Request>} */
  waiting = new Map();
  next = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  timer = undefined;
  isRunning = false;
  isClosed = false;
  /** Stops the run in progress if its callers have stopped all of its requests. */
  stopUnneeded = () => {};
  /** Called when nothing is left after `close`. */
  ended = () => {};

  /** @param {Session} session @param {Options | null} [options] */
  constructor(session, options) {
    this.session = session;
    this.parts = partsOf(session);
    const { InvalidInput } = this.parts;
    const defaults = { size: 8, wait: 5, pad: /** @type {NonNullable<Options['pad']>} */ ({}), dim: '', outputs: session.outputNames };
    const { size, wait, pad, dim, outputs } = optionsOf(options, defaults, 'Batcher', InvalidInput);
    if (!(Number.isInteger(size) && size >= 1 && wait >= 0)) {
      throw new InvalidInput(`size ${size} and wait ${wait} do not fit`, { hint: 'size: from 1 on; wait: from 0 on' });
    }
    this.pad = pad;
    this.outputs = [...outputs];
    const known = session.outputMetadata.filter((/** @type {{ name: string }} */ { name }) => outputs.includes(name));
    this.layout = new BatchLayout(session.inputMetadata.map(declared), known.map(declared), dim, Object.keys(pad));
    const { refused } = this.layout;
    if (refused) throw new InvalidInput(`this model cannot run batches: ${refused}`, { hint: 'the option dim names the batch dim; outputs leaves outputs out; a model with a fixed batch cannot' });
    this.gatherer = new Gatherer(size, wait);
  }

  // ── requests ──

  /** @param {Feeds} feeds @param {{ signal?: AbortSignal | null, adapters?: Adapters | null } | null} [options] @returns {Promise<Record<string, Tensor>>} */
  async run(feeds, options) {
    /** @type {{ signal?: AbortSignal, adapters?: Adapters }} */
    const none = { signal: undefined, adapters: undefined };
    const { signal, adapters: given } = optionsOf(options, none, 'run', this.parts.InvalidInput);
    const adapters = given ? structuredClone(given) : undefined; // the caller may change it
    const { SessionFailed, InvalidInput } = this.parts;
    if (this.isClosed) throw new SessionFailed('the batcher is closed', { hint: 'create another' });
    if (signal?.aborted) throw this.stopped(signal);
    const copies = this.checked(feeds, adapters);
    const dims = new Map(Object.entries(copies).map(([name, tensor]) => [name, [...tensor.dims]]));
    const rows = this.layout.rows(dims);
    if (rows < 1) throw new InvalidInput('the inputs of a request need equal numbers of rows, at least one');
    return new Promise((resolve, reject) => {
      const request = { feeds: copies, dims, rows, signal, adapters, stopped: false, end: () => {}, resolve, reject };
      const number = this.next++;
      if (signal) this.watch(request, number, signal);
      this.waiting.set(number, request);
      this.gatherer.add(`${this.key(copies, dims)};${JSON.stringify(adapters)}`, number, rows, performance.now(), this.layout.length(dims));
      this.plan();
    });
  }

  /** @param {AbortSignal} signal */
  stopped(signal) {
    return new this.parts.Terminated('the request was stopped: its signal is aborted', { cause: signal.reason });
  }

  /** @param {Request} request @param {number} number @param {AbortSignal} signal */
  watch(request, number, signal) {
    const stop = () => {
      request.stopped = true;
      if (this.gatherer.remove(number)) this.waiting.delete(number);
      request.reject(this.stopped(signal));
      this.stopUnneeded();
      this.plan(); // it may have been the last one before `close`
    };
    signal.addEventListener('abort', stop, { once: true });
    request.end = () => signal.removeEventListener('abort', stop);
  }

  /**
   * Copies, which the caller cannot change while the request waits, without what the run feeds for adapters.
   * @param {Feeds} feeds @param {Adapters} [adapters] @returns {Feeds}
   */
  checked(feeds, adapters) {
    const { InvalidInput } = this.parts;
    const known = this.layout.inputs.map((input) => input.name);
    const all = this.session.handler.checked(feeds, undefined, adapters);
    const entries = Object.entries(all).filter(([name, tensor]) => tensor && Object.hasOwn(feeds, name));
    return Object.fromEntries(entries.map(([name, { type, dims, data, location, size }]) => {
      if (!known.includes(name) || location.startsWith('gpu') || data.length !== size) {
        throw new InvalidInput(`input "${name}" cannot be part of a batch`, { hint: 'run it in a session' });
      }
      return [name, new this.parts.Tensor(type, data.slice(), [...dims])];
    }));
  }

  /** @param {Feeds} feeds @param {Map<string, number[]>} dims */
  key(feeds, dims) {
    const entries = Object.entries(feeds);
    const alone = entries.filter(([name]) => !this.layout.batched.has(name));
    const contents = alone.map(([name, { dims: own, data }]) => /** @type {[string, string]} */ ([name, JSON.stringify([own, [...data].map(String)])]));
    return this.layout.key(new Map(entries.map(([name, { type }]) => [name, type])), dims, new Map(contents));
  }

  /** Runs what waits, and refuses later requests. The session stays open. @returns {Promise<void>} */
  close() {
    this.isClosed = true;
    return new Promise((resolve) => {
      const before = this.ended;
      this.ended = () => {
        before();
        resolve();
      };
      this.plan();
    });
  }

  // ── runs ──

  /** Starts the next run if it is due, or waits until it is. */
  plan() {
    if (this.isRunning) return;
    clearTimeout(this.timer);
    const now = this.isClosed ? Infinity : performance.now();
    const numbers = this.gatherer.take(now);
    const due = this.gatherer.due();
    if (numbers.length) this.start(numbers);
    else if (due < Infinity) this.timer = setTimeout(() => this.plan(), Math.max(0, due - now));
    else if (this.isClosed) this.ended();
  }

  /** @param {number[]} numbers of requests */
  async start(numbers) {
    this.isRunning = true;
    const requests = numbers.map((number) => /** @type {Request} */ (this.waiting.get(number)));
    for (const number of numbers) this.waiting.delete(number);
    await this.settle(requests);
    for (const { end } of requests) end();
    this.stopUnneeded = () => {};
    this.isRunning = false;
    this.plan();
  }

  /**
   * Runs requests together. If that fails, runs halves, so that only a request at fault fails.
   * @param {Request[]} requests @returns {Promise<void>}
   */
  async settle(requests) {
    requests = requests.filter(({ stopped }) => !stopped);
    if (!requests.length) return;
    try {
      const results = await this.together(requests);
      requests.forEach(({ resolve }, n) => resolve(results[n]));
    } catch (error) {
      const concernsAll = ['SessionFailed', 'DeviceLost', 'Terminated'].includes(/** @type {{ type?: string }} */ (error ?? {}).type ?? '');
      if (requests.length === 1 || concernsAll) return requests.forEach(({ reject }) => reject(error));
      const half = requests.length >> 1;
      await this.settle(requests.slice(0, half));
      await this.settle(requests.slice(half));
    }
  }

  /** @param {Request[]} requests @returns {Promise<Record<string, Tensor>[]>} */
  async together(requests) {
    const feeds = Object.fromEntries(Object.keys(requests[0].feeds).map((name) => [name, this.joined(name, requests)]));
    const stop = new AbortController();
    this.stopUnneeded = () => void (requests.every(({ stopped }) => stopped) && stop.abort());
    const canStop = requests.every(({ signal }) => signal);
    const found = await this.session.run(feeds, this.outputs, { signal: canStop ? stop.signal : undefined, adapters: requests[0].adapters });
    await Promise.all(Object.values(found).map((output) => output.location === 'gpu-buffer' && output.getData(true))); // and frees its buffer
    const rows = requests.reduce((sum, request) => sum + request.rows, 0);
    for (const name of this.outputs) {
      if (found[name]?.dims?.[0] === rows) continue;
      throw new this.parts.InvalidInput(`output "${name}" has no row for each of ${rows}`, { hint: 'outputs leaves it out' });
    }
    let start = 0;
    return requests.map((request) => {
      const from = start;
      start += request.rows;
      return Object.fromEntries(this.outputs.map((name) => [name, this.part(name, found[name], from, request)]));
    });
  }

  /** @param {string} name @param {Request[]} requests @returns {Tensor} */
  joined(name, requests) {
    const parts = requests.map(({ feeds }) => feeds[name]);
    const { type, dims, data } = parts[0];
    if (parts.length === 1 || !this.layout.batched.has(name)) return new this.parts.Tensor(type, data, dims);
    const whole = this.layout.sharedDims(parts.map((part) => [...part.dims]));
    const all = emptyData(data, product(whole));
    if (Object.hasOwn(this.pad, name)) all.fill(type.endsWith('int64') ? BigInt(this.pad[name]) : this.pad[name]);
    let row = 0;
    for (const part of parts) {
      copyBlock({ data: part.data, dims: part.dims, at: rowAt(0, whole) }, { data: all, dims: whole, at: rowAt(row, whole) }, part.dims);
      row += part.dims[0];
    }
    return new this.parts.Tensor(type, all, whole);
  }

  /** The request's part of an output. @param {string} name @param {Tensor} output @param {number} from row @param {Request} request */
  part(name, { type, dims, data }, from, request) {
    const own = this.layout.resultDims(name, [...dims], request.dims);
    const cut = emptyData(data, product(own));
    copyBlock({ data, dims, at: rowAt(from, own) }, { data: cut, dims: own, at: rowAt(0, own) }, own);
    return new this.parts.Tensor(type, cut, own);
  }
}

/** The place of a row in a tensor with these dims. @param {number} row @param {readonly number[]} dims */
const rowAt = (row, dims) => dims.map((_, axis) => (axis ? 0 : row));

/** @param {{ name: string, isTensor: boolean, shape?: readonly (number | string)[] }} value of a session's metadata */
const declared = ({ name, isTensor, shape = [] }) => ({ name, dims: isTensor ? shape.map((dim) => (dim === '' ? null : dim)) : null });
