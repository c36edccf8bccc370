// A step that a GPU runner has prepared.

/** @import { Call } from '../common/program.js' */
/** @import { LayoutBindings } from './bindings.js' */

/** A step with bound shapes, and its dispatches: one for each call that has work. */
export class Prepared {
  /**
   * @param {LayoutBindings} bindings @param {ArrayLike<number>} words its argument blocks: addresses, parameters and work of each call
   * @param {(call: Call, work: number) => [number, number]} count workgroups of a call along x and y
   */
  constructor(bindings, words, count) {
    this.bindings = bindings;
    /** Parameters and work of all calls. */
    this.words = new Int32Array(bindings.calls.reduce((sum, { params }) => sum + params.length + 1, 0));
    /** The number of each dispatch's call. @type {number[]} */
    this.numbers = [];
    /** Workgroups: x and y of each dispatch. @type {number[]} */
    this.counts = [];
    let [at, to] = [0, 0];
    bindings.calls.forEach((call, n) => {
      at += call.buffers.length;
      for (let k = 0; k <= call.params.length; k++) this.words[to++] = words[at++];
      const work = words[at - 1];
      if (work <= 0) return;
      this.numbers.push(n);
      this.counts.push(...count(call, work));
    });
    /** The call of each dispatch. @type {Call[]} */
    this.dispatched = this.numbers.map((n) => bindings.calls[n]);
    /** Of parameter blocks. */
    this.offsets = new Uint32Array(this.numbers.length);
    /** Dispatches of a submission, in a run that can be stopped. */
    this.portion = 1;
  }

  /** The parameter blocks, as they lie in a region. */
  blocks() {
    const { calls, starts, size } = this.bindings;
    const blocks = new Int32Array(size / 4);
    let at = 0;
    calls.forEach(({ params }, n) => {
      const end = at + params.length + 1;
      blocks.set(this.words.subarray(at, end), starts[n] / 4);
      at = end;
    });
    return blocks;
  }
}
