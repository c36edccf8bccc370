// A step that a GPU runner has prepared.

import { blockSize } from './bindings.js';

/** @import { Call } from '../common/program.js' */
/** @import { LayoutBindings } from './bindings.js' */

/** Workgroups of a call along x and y; ranges: the number of the parameter for a range of steps, -1 if the call has one dispatch. @typedef {{ count: [number, number], ranges: number }} Dispatched */

/** A step with bound shapes, and its dispatches: for each call that has work, one, or one for each range of its steps. */
export class Prepared {
  /**
   * @param {LayoutBindings} bindings @param {ArrayLike<number>} words its argument blocks: addresses, parameters and work of each call
   * @param {(call: Call, work: number) => Dispatched} dispatched
   */
  constructor(bindings, words, dispatched) {
    this.bindings = bindings;
    /** Parameters and work of all calls. */
    this.words = new Int32Array(bindings.calls.reduce((sum, { params }) => sum + params.length + 1, 0));
    /** The number of each dispatch's call. @type {number[]} */
    this.numbers = [];
    /** Workgroups: x and y of each dispatch. @type {number[]} */
    this.counts = [];
    /** Offset of each dispatch's parameter block in a region. @type {number[]} */
    this.starts = [];
    /** Bytes of a region. */
    this.size = bindings.size;
    /** For each call with ranges: its number, the number of the parameter, and its first dispatch. @type {[number, number, number][]} */
    this.ranges = [];
    let [at, to] = [0, 0];
    bindings.calls.forEach((call, n) => {
      at += call.buffers.length;
      for (let k = 0; k <= call.params.length; k++) this.words[to++] = words[at++];
      const work = words[at - 1];
      if (work > 0) this.add(n, dispatched(call, work), words, at - call.params.length - 1);
    });
    /** The call of each dispatch. @type {Call[]} */
    this.dispatched = this.numbers.map((n) => bindings.calls[n]);
    /** Of parameter blocks. */
    this.offsets = new Uint32Array(this.numbers.length);
    /** Dispatches of a submission, in a run that can be stopped. */
    this.portion = 1;
  }

  /**
   * Adds the dispatches of a call.
   * @param {number} n its number @param {Dispatched} how @param {ArrayLike<number>} words @param {number} first the place of its parameters in `words`
   */
  add(n, { count, ranges }, words, first) {
    const { bindings } = this;
    if (ranges >= 0) this.ranges.push([n, ranges, this.numbers.length]);
    for (let k = 0; k < (ranges >= 0 ? words[first + ranges] : 1); k++) {
      this.numbers.push(n);
      this.counts.push(...count);
      this.starts.push(k ? this.size : bindings.starts[n]);
      if (k) this.size += blockSize(bindings.calls[n].params);
    }
  }

  /** The parameter blocks, as they lie in a region. */
  blocks() {
    const { calls, starts } = this.bindings;
    const blocks = new Int32Array(this.size / 4);
    let at = 0;
    calls.forEach(({ params }, n) => {
      const end = at + params.length + 1;
      blocks.set(this.words.subarray(at, end), starts[n] / 4);
      at = end;
    });
    for (const [n, parameter, first] of this.ranges) {
      const own = starts[n] / 4;
      for (let k = 0; this.numbers[first + k] === n; k++) {
        const place = this.starts[first + k] / 4;
        blocks.copyWithin(place, own, own + calls[n].params.length + 1);
        blocks[place + parameter] = k;
      }
    }
    return blocks;
  }
}
