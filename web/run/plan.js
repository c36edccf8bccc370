// Memory plans: which buffer lies where after each step, made once for a way through the Program and found again.

import { ShapeError } from '../common/errors.js';
import { evaluate } from './dims.js';
import { Guards } from './guards.js';
import { Arena, GPU } from './arena.js';
import { LiveRange } from './step_layout.js';
import { State } from './plan_state.js';

/** @typedef {import('./dims.js').Env} Env */
/** @typedef {import('./arena.js').Span} Span */
/** @typedef {import('../common/program.js').Call} Call */
/** @typedef {import('../common/program.js').Header} Header */
/** @typedef {import('./plan_state.js').Transition} Transition */

const LARGEST = 2 ** 31 - 1; // of parameters and work: kernels count in int32
const MEMO = 20_000; // transitions kept before they are forgotten
const PARAMETERS = 4 << 20; // bytes of parameter blocks on the GPU, likewise

export class Planner {
  /** @param {Header} header @param {import('./arena.js').Memory} memory @param {import('../gpu/runner.js').GpuRunner | null} gpu */
  constructor(header, memory, gpu = null) {
    this.header = header;
    this.memory = memory;
    this.gpu = gpu;
    /** Constants. @type {Map<number, Span>} */
    this.constants = new Map();
    /** While starting: buffers that have their memory already. @type {Set<number>} */
    this.preallocated = new Set();
    this.root = new State(new Arena(), new Arena([], GPU, gpu?.memory.chunk ?? 1), new Map(), new Map());
    this.tables = { base: 0, size: 0, top: 0, generation: 0 };
    /** @type {Map<string, State>} */
    this.interned = new Map();
    this.transitions = 0;
    this.guards = new Guards(header);
  }

  /**
   * The state after a step, planned by `change` on a copy unless it was before.
   * @param {State} state @param {string} key @param {(next: State) => void} change
   * @returns {State}
   */
  advance(state, key, change) {
    const found = state.next.get(key);
    if (found) return found.state;
    const next = state.copy();
    change(next);
    this.ensure(next);
    state.next.set(key, { state: next, table: 0, generation: 0 });
    this.transitions++;
    return next;
  }

  /** Memory for all that lies there. @param {State} state */
  ensure(state) {
    this.memory.ensure(state.arena.end + 64);
    this.gpu?.memory.ensure(state.gpu.end);
  }

  /**
   * Gives the buffers of calls their addresses and writes the argument blocks.
   * @param {Call[]} calls @param {State} state @param {string} key
   * @returns {Transition}
   */
  planCalls(calls, state, key) {
    const { next, words } = this.layOutCalls(calls, state);
    const table = this.writeTable(words);
    const transition = { state: next, table, generation: this.tables.generation };
    state.next.set(key, transition);
    this.transitions++;
    return transition;
  }

  /**
   * The same for a step of the GPU.
   * @param {Call[]} calls @param {State} state @param {string} key
   * @returns {Transition}
   */
  planDispatches(calls, state, key) {
    const { next, words } = this.layOutCalls(calls, state);
    const sizes = calls.map(({ buffers }) => buffers.map((buffer) => this.size(next, buffer)));
    const transition = { state: next, table: 0, generation: 0, prepared: this.gpu?.prepare(calls, sizes, words) };
    state.next.set(key, transition);
    this.transitions++;
    return transition;
  }

  /**
   * Addresses, parameters and work of calls, one after the other, and the state after them.
   * @param {Call[]} calls @param {State} state
   */
  layOutCalls(calls, state) {
    const next = state.copy();
    const found = this.liveRanges(calls, next);
    next.layOutStep(found, calls.length);
    this.ensure(next);
    /** @type {number[]} */
    const words = [];
    for (const call of calls) {
      for (const buffer of call.buffers) words.push((found.get(buffer) ?? this.span(next, buffer)).address);
      for (const dim of [...call.params, call.work]) {
        const number = evaluate(dim, next.env);
        if (Math.abs(number) > LARGEST) throw new ShapeError(`a kernel would count to ${number}, the most is ${LARGEST}`, { node: call.node });
        words.push(number);
      }
    }
    return { next, words };
  }

  /**
   * What each buffer that the calls make or free lives in. An output may take over the memory of an input which ends there.
   * @param {Call[]} calls @param {State} state @returns {Map<number, LiveRange>}
   */
  liveRanges(calls, state) {
    /** @type {Map<number, LiveRange>} */
    const found = new Map();
    const of = (/** @type {number} */ buffer) => {
      const span = state.spans.get(buffer);
      if (span && !found.has(buffer)) found.set(buffer, new LiveRange(span.size, 0, calls.length, span.address));
      return found.get(buffer);
    };
    calls.forEach((call, now) => {
      const dying = new Set(call.free);
      for (const buffer of call.alloc) {
        if (this.preallocated.has(buffer)) continue;
        if (this.size(state, buffer) < 0) throw new ShapeError('an output would have a negative dim', { node: call.node });
        const source = this.takenOver(call, buffer, dying, state);
        const range = source === undefined ? undefined : of(source);
        found.set(buffer, range ?? this.liveRange(buffer, now, calls.length, state));
        if (!range || source === undefined) continue;
        range.reuses++;
        dying.delete(source);
      }
      for (const range of [...dying].map(of)) if (range) range.dies = now;
    });
    return found;
  }

  /** @param {number} buffer @param {number} born @param {number} calls @param {State} state */
  liveRange(buffer, born, calls, state) {
    const onGpu = this.isOnGpu(buffer);
    return new LiveRange((onGpu ? state.gpu : state.arena).round(this.size(state, buffer)), born, calls, -1, onGpu);
  }

  /** @param {Call} call @param {number} buffer @param {Set<number>} dying @param {State} state */
  takenOver({ inplace }, buffer, dying, state) {
    const size = this.size(state, buffer);
    return inplace.find(([output, input]) => output === buffer && dying.has(input) && this.size(state, input) === size)?.[1];
  }

  /** @param {number[]} words @returns {number} the address of the table */
  writeTable(words) {
    const size = Math.ceil((4 * words.length) / 64) * 64;
    if (this.tables.top + size > this.tables.size) this.clear();
    const address = this.tables.base + this.tables.top;
    this.tables.top += size;
    new Int32Array(this.memory.memory.buffer, address, words.length).set(words);
    return address;
  }

  /** Before a run: not without end. */
  limit() {
    if (this.transitions > MEMO || (this.gpu?.parameterBytes ?? 0) > PARAMETERS) this.clear();
  }

  /** Drops all plans; those of a run in progress are made again as it meets them. */
  clear() {
    this.tables.top = 0;
    this.tables.generation++;
    this.gpu?.forget();
    this.root.next.clear();
    this.interned.clear();
    this.transitions = 0;
  }

  /** The one state of this content. @param {State} state @returns {State} */
  intern(state) {
    const content = state.content();
    const known = this.interned.get(content);
    if (!known) this.interned.set(content, state);
    return known ?? state;
  }

  /** @param {State} state @param {number} buffer @returns {number} bytes */
  size(state, buffer) {
    return evaluate(this.header.buffers[buffer].size, state.env);
  }

  /** @param {State} state @param {number} buffer */
  take(state, buffer) {
    if (!this.header.buffers[buffer].host) state.take(buffer, this.size(state, buffer), this.isOnGpu(buffer));
  }

  /** Whether a buffer is on the GPU. @param {number} buffer */
  isOnGpu(buffer) {
    return this.header.buffers[buffer].memory === 'webgpu';
  }

  /** @param {State} state @param {Iterable<number>} buffers */
  drop(state, buffers) {
    for (const buffer of buffers) state.drop(buffer);
  }

  /** @param {State} state @param {number} buffer @returns {Span} */
  span(state, buffer) {
    const span = state.spans.get(buffer) ?? this.constants.get(buffer);
    if (!span) throw new Error(`buffer ${buffer} has no memory`);
    return span;
  }

  /** @param {State} state @param {number} buffer @returns {Uint8Array} */
  bytes(state, buffer) {
    return this.memory.view(this.span(state, buffer), this.size(state, buffer));
  }

  /** Symbols take the dims that values turned out to have. @param {State} state @param {import('../common/program.js').Binds} binds @param {number[][]} dims */
  bind(state, binds, dims) {
    for (const [value, axis, symbol] of binds) state.env.set(symbol, dims[value]?.[axis] ?? 0);
    this.guards.check(state.env, new Set(binds.map(([, , symbol]) => symbol)));
  }
}
