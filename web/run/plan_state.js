// Where everything lies at one point of a run. States form a tree: a step leads from one to the next, and what was
// planned once is found again by its key, so a second run with the same shapes plans nothing.

import { GPU } from './arena.js';
import { layOut } from './step_layout.js';

/** @typedef {import('./arena.js').Arena} Arena */
/** @typedef {import('./arena.js').Span} Span */
/** @typedef {import('./dims.js').Env} Env */
/** @typedef {import('./layout.js').Layout} Layout */
/** @typedef {import('./step_layout.js').LiveRange} LiveRange */
/**
 * table: address of the step's argument blocks.
 * @typedef {{ state: State, layout: Layout, table: number, generation: number, prepared?: import('../gpu/runner.js').Prepared }} Transition
 */

/**
 * Both memories: what is free, and what lies where. Once a layout leads to it it is changed no more, and states of
 * different shapes share it.
 */
export class Place {
  /** @param {Arena} arena @param {Arena} gpu @param {Map<number, Span>} [spans] by buffer */
  constructor(arena, gpu, spans = new Map()) {
    this.arena = arena;
    this.gpu = gpu;
    this.spans = spans;
    /** What was laid out from here on, by what took it. @type {Map<string, Layout[]>} */
    this.layouts = new Map();
    this.held = 0;
    this.peak = 0;
    this.requested = 0;
  }

  /** A copy to plan on. */
  copy() {
    const copy = new Place(this.arena.copy(), this.gpu.copy(), new Map(this.spans));
    return Object.assign(copy, { held: this.held, peak: this.peak, requested: this.requested });
  }

  /** A copy where nothing lies but these. @param {Set<number>} buffers */
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

  /** Nothing where the buffer holds no memory. @param {number} buffer */
  drop(buffer) {
    const span = this.spans.get(buffer);
    if (!span) return;
    this.spans.delete(buffer);
    (span.address >= GPU ? this.gpu : this.arena).release(span);
    this.held -= span.size;
  }

  /**
   * Memory for the ranges of a step with so many calls, by the names they go under; the place is then that after it.
   * @param {Map<number, LiveRange>} found @param {number} calls
   */
  layOutStep(found, calls) {
    const last = new Map([...found].map(([buffer, range]) => [range, buffer])); // in place: the last name stays
    const those = [...last.keys()];
    const isOnGpu = (/** @type {LiveRange} */ { onGpu, address }) => onGpu || address >= GPU;
    this.count(those, calls);
    layOut(this.arena, those.filter((range) => !isOnGpu(range)), calls);
    layOut(this.gpu, those.filter(isOnGpu), calls);
    for (const buffer of found.keys()) this.spans.delete(buffer);
    for (const [{ address, size, dies }, buffer] of last) if (dies >= calls) this.spans.set(buffer, { address, size });
  }

  /** What a step adds to the figures. @param {LiveRange[]} ranges @param {number} calls */
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

  /** The memory of one buffer becomes another's. @param {number} from @param {number} to */
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

  /** Equal for states from which everything goes on alike. */
  content() {
    const { arena, gpu, spans } = this.place;
    const all = [...spans].sort(([a], [b]) => a - b).map(([buffer, { address, size }]) => [buffer, address, size]);
    return JSON.stringify([arena.end, arena.free, gpu.end, gpu.free, all, [...this.env].sort()]);
  }
}

/** What leads to the next state besides calls: values of symbols, buffers that take memory, lose it or pass it on. */
export class Change {
  /** @param {Env} env */
  constructor(env) {
    /** @type {Env} */
    this.env = new Map(env);
    /** Bytes of those that take it. @type {Map<number, number>} */
    this.sizes = new Map();
    /** @type {((place: Place, room: Map<number, number>) => void)[]} */
    this.moves = [];
    /** Equal for those that do the same with the same buffers. */
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
