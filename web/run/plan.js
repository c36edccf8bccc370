// Memory plans: the address of each buffer after each step, planned once for a path through the Program and memoised.

import { ShapeError } from '../common/errors.js';
import { ArgumentBlocks } from './argument_blocks.js';
import { evaluate } from '../common/dims.js';
import { Guards } from '../runtime/guards.js';
import { Arena, GPU } from './arena.js';
import { Layout, roomFor, sizesKnown } from './layout.js';
import { LiveRange } from './step_layout.js';
import { Change, Place, State } from './plan_state.js';

/** @typedef {import('../common/dims.js').Env} Env */
/** @typedef {import('./arena.js').Span} Span */
/** @typedef {import('../common/program.js').Call} Call */
/** @typedef {import('../common/program.js').Header} Header */
/** @typedef {import('./layout.js').Sizes} Sizes */
/** @typedef {import('./plan_state.js').Transition} Transition */
/**
 * The part of the GPU that a planner uses. forget: drops all that belongs to plans.
 * @typedef {{ memory: { chunk: number, ensure(end: number): void }, parameterBytes: number, forget(): void,
 *   prepare(calls: Call[], sizes: number[][], words: number[]): import('./plan_state.js').PreparedStep }} PlannerGpu
 */

const MEMO = 20_000; // transitions: the memo is cleared beyond this size
const LAYOUTS = 4096; // layouts: all are dropped beyond this number, also within one long run
const PARAMETERS = 4 << 20; // bytes of parameter blocks on the GPU: the memo is cleared beyond this size

export class Planner {
  /** @param {Header} header @param {import('./arena.js').Memory} memory @param {PlannerGpu | null} gpu */
  constructor(header, memory, gpu = null) {
    this.header = header;
    this.memory = memory;
    this.gpu = gpu;
    /** Constants. Those in further memories have addresses that the compiler chose. @type {Map<number, Span>} */
    this.constants = new Map();
    header.buffers.forEach(({ further, size }, buffer) => {
      if (further) this.constants.set(buffer, { memory: further[0], address: further[1], size: Number(size) });
    });
    /** During start-up: buffers that have memory already. @type {Set<number>} */
    this.preallocated = new Set();
    this.root = new State(new Place(new Arena(), new Arena([], GPU, gpu?.memory.chunk ?? 1)), new Map());
    this.tables = { base: 0, size: 0, top: 0, generation: 0 };
    /** @type {Map<string, State>} */
    this.interned = new Map();
    this.transitions = 0;
    this.layouts = 0;
    /** By step, the sizes of its buffers in the last layout, from any place. @type {Map<string, import('./layout.js').Bytes>} */
    this.sizesBefore = new Map();
    /** Whether some layout has spare capacity. */
    this.hasSpareCapacity = false;
    /** Argument blocks by the steps' keys. @type {Map<string, ArgumentBlocks>} */
    this.blocks = new Map();
    this.guards = new Guards(header);
    /** For each buffer, the first buffer whose size is the same dim. */
    this.alike = firsts(header.buffers.map(({ size }) => JSON.stringify(size)));
  }

  /** The initial state of a run that reuses these buffers of an earlier run. @param {Place} place at the end of that run @param {Set<number>} buffers @returns {State} */
  startFrom(place, buffers) {
    return this.intern(new State(place.leaving(buffers), new Map()));
  }

  /**
   * The state after a change, planned on first use.
   * @param {State} state @param {string} key @param {(next: Change) => void} change
   * @returns {State}
   */
  advance(state, key, change) {
    const found = state.next.get(key);
    if (found) return found.state;
    const next = new Change(state.env);
    change(next);
    const size = (/** @type {number} */ buffer) => Number(next.sizes.get(buffer));
    const layout = this.layout(state.place, next.name, [...next.sizes.keys()], size, (fresh) => {
      for (const move of next.moves) move(fresh.after, fresh.room);
    });
    return this.remember(state, key, { state: new State(layout.after, next.env), layout, table: 0, generation: 0 }).state;
  }

  /** @param {State} state @param {string} key @param {Transition} transition */
  remember(state, key, transition) {
    state.next.set(key, transition);
    this.transitions++;
    return transition;
  }

  /**
   * A memoised layout for `what` from this place on, if these sizes fit. Else a new one, with spare capacity for buffers whose
   * size differs from an earlier layout's, from any place: after a new layout all later places are new.
   * @param {Place} place @param {string} what @param {number[]} made buffers @param {Sizes} size @param {(fresh: Layout<Place>) => void} fill
   */
  layout(place, what, made, size, fill) {
    const before = place.layouts.get(what) ?? [];
    const found = before.find((layout) => layout.holds(size));
    if (found) return found;
    if (this.layouts++ === LAYOUTS) this.tighten();
    const sizes = new Map(made.map((buffer) => [buffer, size(buffer)]));
    const known = this.sizesBefore.get(what);
    const fresh = new Layout(place.copy(), roomFor(sizes, known), sizes);
    this.hasSpareCapacity ||= known !== undefined;
    this.sizesBefore.set(what, sizesKnown(sizes, known));
    fill(fresh);
    this.ensure(fresh.after);
    place.layouts.set(what, [...before, fresh]);
    return fresh;
  }

  /** Grows the memories to contain a place. @param {Place} place */
  ensure(place) {
    this.memory.ensure(place.arena.end + 64);
    this.gpu?.memory.ensure(place.gpu.end);
  }

  /**
   * Plans a step on the CPU: assigns addresses to buffers, and writes the argument blocks.
   * @param {Call[]} calls @param {State} state @param {string} key
   * @returns {Transition}
   */
  planCalls(calls, state, key) {
    const { layout, words } = this.layOutCalls(calls, state, key);
    const table = this.writeTable(words);
    return this.remember(state, key, { state: new State(layout.after, state.env), layout, table, generation: this.tables.generation });
  }

  /**
   * Plans a step on the GPU.
   * @param {Call[]} calls @param {State} state @param {string} key
   * @returns {Transition}
   */
  planDispatches(calls, state, key) {
    const { layout, words } = this.layOutCalls(calls, state, key);
    const sizes = calls.map(({ buffers }) => buffers.map((buffer) => (layout.spans.get(buffer) ?? this.span(state, buffer)).size));
    const prepared = this.gpu?.prepare(calls, sizes, [...words]);
    return this.remember(state, key, { state: new State(layout.after, state.env), layout, table: 0, generation: 0, prepared });
  }

  /**
   * The layout of the calls' buffers, and the words of all argument blocks.
   * @param {Call[]} calls @param {State} state @param {string} key
   */
  layOutCalls(calls, state, key) {
    const size = this.sizes(state);
    const blocks = this.blocksOf(calls, key);
    const made = this.preallocated.size ? blocks.made.filter((buffer) => !this.preallocated.has(buffer)) : blocks.made;
    const layout = this.layout(state.place, key, made, size, (fresh) => {
      fresh.spans = this.liveRanges(calls, state.place, size, fresh);
      fresh.after.layOutStep(fresh.spans, calls.length);
    });
    layout.words ??= blocks.addresses((buffer) => (layout.spans.get(buffer) ?? this.span(state, buffer)).address);
    return { layout, words: blocks.fill(layout.words.slice(), state.env) };
  }

  /** @param {Call[]} calls @param {string} key */
  blocksOf(calls, key) {
    const known = this.blocks.get(key) ?? new ArgumentBlocks(calls);
    this.blocks.set(key, known);
    return known;
  }

  /**
   * The live ranges of buffers that the calls allocate or free. An output may take over the memory of an input that dies.
   * @param {Call[]} calls @param {Place} place @param {Sizes} size @param {Layout<Place>} layout receives the pairs of such buffers
   * @returns {Map<number, LiveRange>}
   */
  liveRanges(calls, place, size, { room, heirs }) {
    /** @type {Map<number, LiveRange>} */
    const found = new Map();
    const of = (/** @type {number} */ buffer) => {
      const span = place.spans.get(buffer);
      if (span && !found.has(buffer)) found.set(buffer, new LiveRange(span.size, 0, calls.length, span.address));
      return found.get(buffer);
    };
    calls.forEach((call, now) => {
      const dying = new Set(call.free);
      for (const buffer of call.alloc) {
        if (this.preallocated.has(buffer)) continue;
        if (size(buffer) < 0) throw new ShapeError('an output would have a negative dim', { node: call.node });
        const source = takenOver(call, buffer, dying, size);
        const range = source === undefined ? undefined : of(source);
        found.set(buffer, range ?? this.liveRange(buffer, now, calls.length, place, Number(room.get(buffer))));
        if (!range || source === undefined) continue;
        heirs.push([buffer, source]);
        range.reuses++;
        dying.delete(source);
      }
      for (const range of [...dying].map(of)) if (range) range.dies = now;
    });
    return found;
  }

  /** @param {number} buffer @param {number} born @param {number} calls @param {Place} place @param {number} room bytes */
  liveRange(buffer, born, calls, place, room) {
    const onGpu = this.isOnGpu(buffer);
    return new LiveRange((onGpu ? place.gpu : place.arena).round(room), born, calls, -1, onGpu);
  }

  /** @param {Float64Array} words @returns {number} the address of the table */
  writeTable(words) {
    const size = Math.ceil((4 * words.length) / 64) * 64;
    if (this.tables.top + size > this.tables.size) this.clear();
    const address = this.tables.base + this.tables.top;
    this.tables.top += size;
    new Int32Array(this.memory.memory.buffer, address, words.length).set(words);
    return address;
  }

  /** Bounds the size of the memo, before a run. */
  limit() {
    if (this.transitions > MEMO || (this.gpu?.parameterBytes ?? 0) > PARAMETERS) this.clear();
  }

  /** Drops all plans. A run in progress plans again what it needs. */
  clear() {
    this.tables.top = 0;
    this.tables.generation++;
    this.gpu?.forget();
    this.root.next.clear();
    this.interned.clear();
    this.transitions = 0;
  }

  /** Drops all layouts, so that new ones have no spare capacity. Returns whether some had any. */
  tighten() {
    const { hasSpareCapacity } = this;
    this.root.place.layouts.clear();
    this.sizesBefore.clear();
    this.layouts = 0;
    this.hasSpareCapacity = false;
    this.clear();
    return hasSpareCapacity;
  }

  /** The canonical state with this content. @param {State} state @returns {State} */
  intern(state) {
    const content = state.content();
    const known = this.interned.get(content);
    if (!known) this.interned.set(content, state);
    return known ?? state;
  }

  /** @param {{ env: Env }} state @param {number} buffer @returns {number} bytes */
  size(state, buffer) {
    return evaluate(this.header.buffers[buffer].size, state.env);
  }

  /** `size` as a function that computes equal dims once. @param {State} state @returns {Sizes} */
  sizes(state) {
    /** @type {Map<number, number>} */
    const known = new Map();
    return (buffer) => {
      const first = this.alike[buffer];
      let bytes = known.get(first);
      if (bytes === undefined) known.set(first, (bytes = this.size(state, first)));
      return bytes;
    };
  }

  /** @param {Change} next @param {number} buffer */
  take(next, buffer) {
    if (!this.header.buffers[buffer].host) next.take(buffer, this.size(next, buffer), this.isOnGpu(buffer));
  }

  /** Allocates a buffer in the state itself, during start-up. @param {State} state @param {number} buffer */
  place(state, buffer) {
    if (!this.constants.has(buffer)) state.place.take(buffer, this.size(state, buffer), this.isOnGpu(buffer));
  }

  /** Whether a buffer is on the GPU. @param {number} buffer */
  isOnGpu(buffer) {
    return this.header.buffers[buffer].memory === 'webgpu';
  }

  /** @param {State} state @param {number} buffer @returns {Span} */
  span(state, buffer) {
    const span = state.place.spans.get(buffer) ?? this.constants.get(buffer);
    if (!span) throw new Error(`buffer ${buffer} has no memory`);
    return span;
  }

  /** @param {State} state @param {number} buffer @returns {Uint8Array} */
  bytes(state, buffer) {
    return this.memory.view(this.span(state, buffer), this.size(state, buffer));
  }

  /** Sets symbols to dims of values, and checks guards. @param {Change} next @param {import('../common/program.js').Binds} binds @param {number[][]} dims */
  bind(next, binds, dims) {
    for (const [value, axis, symbol] of binds) next.env.set(symbol, dims[value]?.[axis] ?? 0);
    this.guards.check(next.env, new Set(binds.map(([, , symbol]) => symbol)));
  }
}

/** For each name the position of its first occurrence. @param {string[]} names */
function firsts(names) {
  /** @type {Map<string, number>} */
  const found = new Map();
  names.forEach((name, n) => found.set(name, found.get(name) ?? n));
  return names.map((name) => Number(found.get(name)));
}

/** A dying input whose memory an output may take over. @param {Call} call @param {number} buffer @param {Set<number>} dying @param {Sizes} size */
function takenOver({ inplace }, buffer, dying, size) {
  return inplace.find(([output, input]) => output === buffer && dying.has(input) && size(input) === size(buffer))?.[1];
}
