// What the calls of a step are given: of each the addresses of its buffers, its parameters, and its work.

import { evaluate } from './dims.js';
import { ShapeError } from '../common/errors.js';

/** @typedef {import('../common/program.js').Call} Call */
/** @typedef {import('../common/program.js').Dim} Dim */

const LARGEST = 2 ** 31 - 1; // of parameters and work: kernels count in int32

/** Of one step. Dims that several calls have are computed once for all. */
export class ArgumentBlocks {
  /** @param {Call[]} calls */
  constructor(calls) {
    /** Buffers that the calls make. */
    this.made = calls.flatMap(({ alloc }) => alloc);
    /** Buffers, by the positions of their addresses. @type {[number, number][]} */
    this.buffers = [];
    /** Dims, with the node that first has them, and their positions. @type {{ dim: Dim, node: string, at: number[] }[]} */
    this.dims = [];
    this.length = 0;
    /** @type {Map<string, number[]>} */
    const known = new Map();
    for (const { node, buffers, params, work } of calls) {
      for (const buffer of buffers) this.buffers.push([this.length++, buffer]);
      for (const dim of [...params, work]) this.add(known, dim, node);
    }
  }

  /** @param {Map<string, number[]>} known @param {Dim} dim @param {string} node */
  add(known, dim, node) {
    const name = JSON.stringify(dim);
    const at = known.get(name) ?? [];
    if (!at.length) {
      known.set(name, at);
      this.dims.push({ dim, node, at });
    }
    at.push(this.length++);
  }

  /** All words but the numbers. @param {(buffer: number) => number} address */
  addresses(address) {
    const words = new Float64Array(this.length);
    for (const [at, buffer] of this.buffers) words[at] = address(buffer);
    return words;
  }

  /** @param {Float64Array} words that get the numbers @param {import('./dims.js').Env} env */
  fill(words, env) {
    for (const { dim, node, at } of this.dims) {
      const number = evaluate(dim, env);
      if (Math.abs(number) > LARGEST) throw new ShapeError(`a kernel would count to ${number}, the most is ${LARGEST}`, { node });
      for (const position of at) words[position] = number;
    }
    return words;
  }
}
