// The memory state at one point of a run. States form a tree: a step leads from one state to the next, and transitions are
// memoised by key, so that a second run with the same shapes plans nothing.

import { GPU } from './arena.js';
import { layOut } from './step_layout.js';

/** @typedef {import('./arena.js').Arena} Arena */
/** @typedef {import('./arena.js').Span} Span */
/** @typedef {import('../common/program.js').Call} Call */
/** @typedef {import('../common/dims.js').Env} Env */
/** @typedef {import('./layout.js').Layout<Place>} Layout */
/** @typedef {import('./step_layout.js').LiveRange} LiveRange */
/**
 * A step that the GPU has prepared. sizes: bytes of each call's buffers; words: the argument blocks.
 * @typedef {{ calls: Call[], sizes: number[][], words: number[] }} PreparedStep
 */
/**
 * table: address of the step's argument blocks.
 * @typedef {{ state: State, layout: Layout, table: number, generation: number, prepared?: PreparedStep }} Transition
 */

/**
 * The allocators of both memories, and the span of each buffer. Immutable once a layout leads to it, so that states with
 * different shapes share it.
 */
export class Place {
  /** @param {Arena} arena @param {Arena} gpu @param {Map<number, Span>} [spans] by buffer */
  constructor(arena, gpu, spans = new Map()) {
    this.arena = arena;
    this.gpu = gpu;
    this.spans = spans;
    /** Layouts that start from this place, by step. @type {Map<string, Layout[]>} */
    this.layouts = new Map();
    this.held = 0;
    this.peak = 0;
    this.requested = 0;
  }

  /** A mutable copy. */
  copy() {
    const copy = new Place(this.arena.copy(), this.gpu.copy(), new Map(this.spans));
    return Object.assign(copy, { held: this.held, peak: this.peak, requested: this.requested });
  }

  /** A copy with only these buffers. @param {Set<number>} buffers */
  leaving(buffers) {
    const copy = this.copy();
    for (const buffer of this.spans.keys()) if (!buffers.has(buffer)) copy.drop(buffer);
    return Object.assign(copy, { peak: copy.held, requested: copy.held });
  }

  /** @param {number} buffer @param {number} size @param {boolean} [isOnGpu] on the GPU */
  take(buffer, size, isOnGpu = false) {
    const span = (isOnGpu ? this.gpu : this.arena).alloc(size);
    this.spans.set(buffer, span);
    this.held += span.size;
    this.requested += span.size;
    this.peak = Math.max(this.peak, this.held);
  }

  /** Frees a buffer's memory, if it has any. @param {number} buffer */
  drop(buffer) {
    const span = this.spans.get(buffer);
    if (!span) return;
    this.spans.delete(buffer);
    (span.address >= GPU ? this.gpu : this.arena).release(span);
    this.held -= span.size;
  }

  /**
   * Allocates the live ranges of a step, and becomes the place after it.
   * @param {Map<number, LiveRange>} found @param {number} calls
   */
  layOutStep(found, calls) {
    const last = new Map([...found].map(([buffer, range]) => [range, buffer])); // the last of the buffers that share a range in place
    const those = [...last.keys()];
    const isOnGpu = (/** @type {LiveRange} */ { onGpu, address }) => onGpu || address >= GPU;
    this.count(those, calls);
    layOut(this.arena, those.filter((range) => !isOnGpu(range)), calls);
    layOut(this.gpu, those.filter(isOnGpu), calls);
    for (const buffer of found.keys()) this.spans.delete(buffer);
    for (const [{ address, size, dies }, buffer] of last) if (dies >= calls) this.spans.set(buffer, { address, size });
  }

  /** Updates the statistics for a step. @param {LiveRange[]} ranges @param {number} calls */
  count(ranges, calls) {
    const change = new Array(calls + 1).fill(0);
    for (const { size, born, dies, address, reuses } of ranges) {
      if (address < 0) change[born] += size;
      if (dies < calls) change[dies + 1] -= size;
      this.requested += size * (reuses + Number(address < 0));
    }
    for (const bytes of change) {
      this.held += bytes;
      this.peak = Math.max(this.peak, this.held);
    }
  }

  /** Moves the memory of one buffer to another. @param {number} from @param {number} to */
  pass(from, to) {
    const span = this.spans.get(from);
    if (!span || from === to) return;
    this.spans.delete(from);
    this.spans.set(to, span);
  }
}

export class State {
  /** @param {Place} place @param {Env} env */
  constructor(place, env) {
    this.place = place;
    this.env = env;
    /** @type {Map<string, Transition>} */
    this.next = new Map();
  }

  /** A cache key, equal for states that lead to equal plans. */
  content() {
    const { arena, gpu, spans } = this.place;
    const all = [...spans].sort(([a], [b]) => a - b).map(([buffer, { address, size }]) => [buffer, address, size]);
    return JSON.stringify([arena.end, arena.free, gpu.end, gpu.free, all, [...this.env].sort()]);
  }
}

/** A transition without calls: new values of symbols, and buffers that are allocated, freed or moved. */
export class Change {
  /** @param {Env} env */
  constructor(env) {
    /** @type {Env} */
    this.env = new Map(env);
    /** Sizes of the buffers to allocate. @type {Map<number, number>} */
    this.sizes = new Map();
    /** @type {((place: Place, room: Map<number, number>) => void)[]} */
    this.moves = [];
    /** A key of the changes to buffers. */
    this.name = '';
  }

  /** @param {number} buffer @param {number} size @param {boolean} isOnGpu on the GPU */
  take(buffer, size, isOnGpu) {
    this.sizes.set(buffer, size);
    this.moves.push((place, room) => place.take(buffer, Number(room.get(buffer)), isOnGpu));
    this.name += `+${buffer}`;
  }

  /** @param {Iterable<number>} buffers */
  drop(buffers) {
    for (const buffer of buffers) {
      this.moves.push((place) => place.drop(buffer));
      this.name += `-${buffer}`;
    }
  }

  /** @param {number} from @param {number} to */
  pass(from, to) {
    this.moves.push((place) => place.pass(from, to));
    this.name += `>${from},${to}`;
  }
}
