// Argument blocks of the calls of a step: the addresses of buffers, the parameters, and the work of each call.
// Twin of pyruntime/native/memory/argument_blocks.py.

import { evaluate } from '../common/dims.js';
import { ShapeError } from '../common/errors.js';

/** @import { Call, Dim } from '../common/program.js' */

const LARGEST = 2 ** 31 - 1; // of parameters and work units, because kernels use int32

/** The argument blocks of one step. Dims that several calls share are computed once. */
export class ArgumentBlocks {
  /** @param {Call[]} calls */
  constructor(calls) {
    /** Each buffer with the position of its address in the block. @type {[number, number][]} */
    this.buffers = [];
    /** Distinct dims, each with the first node that has it and its positions. @type {{ dim: Dim, node: string, at: number[] }[]} */
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

  /** The words with addresses, without parameters and work. @param {(buffer: number) => number} address */
  withAddresses(address) {
    const words = new Float64Array(this.length);
    for (const [at, buffer] of this.buffers) words[at] = address(buffer);
    return words;
  }

  /** A copy of these words with parameters and work. @param {Float64Array} template @param {import('../common/dims.js').Env} env */
  fill(template, env) {
    const words = template.slice();
    for (const { dim, node, at } of this.dims) {
      const number = evaluate(dim, env);
      if (Math.abs(number) > LARGEST) throw new ShapeError(`a kernel would need the number ${number}, the largest is ${LARGEST}`, { node });
      for (const position of at) words[position] = number;
    }
    return words;
  }
}
