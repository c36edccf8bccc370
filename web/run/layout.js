// Where what a step makes lies, for all shapes that it has room for: as the caches of a decoder grow with each token, only
// parameters are computed anew (docs/design/memory.md#layouts-for-growing-shapes). Mirrors `Layout` of
// pyruntime/native/memory/step_layout.py.

/** @typedef {import('./plan_state.js').Place} Place */
/** @typedef {(buffer: number) => number} Sizes bytes */
/** @typedef {Map<number, number>} Bytes by buffer */

const SMALL = 1 << 16; // bytes that a layout may always be made for
const LEAST = 1 << 12; // bytes more for a buffer that grows: short caches do so by more than a quarter in few steps
const VARIES = -1; // in place of the size of a buffer that had another one before, which it may keep for some tokens

export class Layout {
  /** @param {Place} after @param {Bytes} room of buffers that are made @param {Bytes} sizes for which it is made */
  constructor(after, room, sizes) {
    this.after = after;
    this.room = room;
    this.needed = [...sizes.values()].reduce((sum, size) => sum + size, 0);
    /** Outputs that lie in the memory of an input, which has their size. @type {[number, number][]} */
    this.heirs = [];
    /** Of what the calls of a step make or free. @type {Map<number, import('./step_layout.js').LiveRange>} */
    this.spans = new Map();
    /** The step's argument blocks without their numbers, addresses on the GPU among them. @type {Float64Array | null} */
    this.words = null;
    /** Of the step's last run on several threads. */
    this.milliseconds = Infinity;
    /** Work units of each call between two looks at whether to stop. @type {number[] | null} */
    this.portions = null;
  }

  /** What was made for much more is too far apart: what lies close together stays in cache. @param {Sizes} size */
  holds(size) {
    let needed = 0;
    for (const [buffer, most] of this.room) {
      const bytes = size(buffer);
      if (bytes < 0 || bytes > most) return false;
      needed += bytes;
    }
    return this.needed <= 2 * needed + SMALL && this.heirs.every(([output, input]) => size(output) === size(input));
  }
}

/** As much as buffers take, and a quarter and LEAST more for those that had another size before. @param {Bytes} sizes @param {Bytes} [before] */
export const roomFor = (sizes, before = sizes) => map(sizes, before, (size) => Math.floor(size * 5 / 4) + LEAST);

/** What is known then for the next. @param {Bytes} sizes @param {Bytes} [before] */
export const sizesKnown = (sizes, before = sizes) => map(sizes, before, () => VARIES);

/** Sizes, or what is in place of those that were others. @param {Bytes} sizes @param {Bytes} before @param {(size: number) => number} varied */
const map = (sizes, before, varied) => new Map([...sizes].map(([buffer, size]) => [buffer, before.get(buffer) === size ? size : varied(size)]));
