// Tensors that grow along an axis, as a chain of their new rows.

import { arrayClass, fill } from '../../common/elements.js';

/** @import { NumericData } from '../../common/protocol.js' */
/**
 * A tensor of these dims. data: its rows along the axis from `from` on; before: a tensor that begins with its earlier rows;
 * shared: another tensor begins with these rows, so they must not change.
 * @typedef {{ data: NumericData, dims: readonly number[], axis: number, from: number, before: Rows | null, shared: boolean }} Rows
 */

/** @param {NumericData} data @param {readonly number[]} dims @returns {Rows} */
export const allRows = (data, dims) => ({ data, dims, axis: 0, from: 0, before: null, shared: false });

/** Copies all elements of a tensor into new memory. @param {Rows} rows @returns {NumericData} */
export function joinRows({ data, dims, axis, from, before }) {
  const product = (/** @type {readonly number[]} */ some) => some.reduce((n, dim) => n * dim, 1);
  const into = new (arrayClass(data))(product(dims));
  const count = product(dims.slice(0, axis));
  const inner = product(dims.slice(axis + 1));
  /** @type {Rows | null} */
  let part = { data, dims, axis, from, before, shared: false };
  for (let end = dims[axis] ?? 1; part; part = part.before) { // from the last rows to the first
    const rows = (part.dims[axis] ?? 1) - part.from;
    const first = Math.min(part.from, end);
    for (let n = 0; n < count; n++) {
      const begin = n * rows * inner;
      fill(into, part.data.subarray(begin, begin + (end - first) * inner), (n * (dims[axis] ?? 1) + first) * inner);
    }
    end = first;
  }
  return into;
}
