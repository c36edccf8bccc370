// Addresses of the buffers of a step, with spare capacity: while the KV caches of a decoder grow with each token, the layout
// stays and only parameters change (docs/design/memory.md#layouts-for-growing-shapes). Mirrors `Layout` of
// pyruntime/native/memory/step_layout.py.

/** @typedef {(buffer: number) => number} Sizes bytes */
/** @typedef {Map<number, number>} Bytes by buffer */

const SMALL = 1 << 16; // bytes: a layout may always exceed the needed size by this
const LEAST = 1 << 12; // bytes of spare capacity, at least: short caches grow by over a quarter in a few steps
const VARIES = -1; // marks buffers whose size has changed

/** @template Place memory after the step */
export class Layout {
  /** @param {Place} after @param {Bytes} room capacities of the buffers @param {Bytes} sizes their sizes when the layout was made */
  constructor(after, room, sizes) {
    this.after = after;
    this.room = room;
    this.needed = [...sizes.values()].reduce((sum, size) => sum + size, 0);
    /** Pairs of an output and the input of the same size whose memory it takes over. @type {[number, number][]} */
    this.heirs = [];
    /** Live ranges of the buffers that the step's calls allocate or free. @type {Map<number, import('./step_layout.js').LiveRange>} */
    this.spans = new Map();
    /** The step's argument blocks with addresses, also on the GPU, but without parameters and work. @type {Float64Array | null} */
    this.words = null;
    /** Duration of the step's last run on several threads. */
    this.milliseconds = Infinity;
    /** Work units of each call between two checks whether to stop. @type {number[] | null} */
    this.portions = null;
  }

  /** Whether these sizes fit. Rejects layouts made for over twice these sizes: they miss the cache. @param {Sizes} size */
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

/** Capacities: the sizes, and a quarter and LEAST more for buffers whose size has changed. @param {Bytes} sizes @param {Bytes} [before] */
export const roomFor = (sizes, before = sizes) => map(sizes, before, (size) => Math.floor(size * 5 / 4) + LEAST);

/** The sizes for the next comparison, VARIES for those that have changed. @param {Bytes} sizes @param {Bytes} [before] */
export const sizesKnown = (sizes, before = sizes) => map(sizes, before, () => VARIES);

/** Sizes, with `varied` applied to those that have changed. @param {Bytes} sizes @param {Bytes} before @param {(size: number) => number} varied */
const map = (sizes, before, varied) => new Map([...sizes].map(([buffer, size]) => [buffer, before.get(buffer) === size ? size : varied(size)]));
