// Sizes of tensors on the GPU, in bytes.

import { elementSize } from '../common/elements.js';
import { byteRanges } from '../runtime/growth.js';
import { isWide } from './storage.js';

/** @import { ByteRanges } from '../runtime/growth.js' */
/** @import { GpuTensor } from './types.js' */

/** In linear memory. @param {string} type @param {readonly number[]} dims */
export const bytesOf = (type, dims) => dims.reduce((size, dim) => size * dim, elementSize(type));

/** Rounded up to whole words, as copies need. @param {string} type @param {readonly number[]} dims */
export const wholeSize = (type, dims) => Math.ceil(bytesOf(type, dims) / 4) * 4;

/** In a session's memory (storage.js). @param {string} type @param {readonly number[]} dims */
export const storedSize = (type, dims) => bytesOf(type, dims) / (isWide(type) ? 2 : 1);

/** Rounds up so that pooled buffers fit more often: to a power of two, or above 1 MiB to a multiple of it. @param {number} size */
export const sizeClass = (size) => (
  size <= 1 << 20 ? 2 ** Math.ceil(Math.log2(Math.max(size, 256))) : Math.ceil(size / (1 << 20)) * (1 << 20));

/** The bytes that a GPU tensor takes in its buffer. @param {GpuTensor} tensor @returns {ByteRanges} */
export function rangesIn({ type, dims, data: { room } }) {
  if (room) return byteRanges([...dims], room.axis, room.places, elementSize(type));
  const size = bytesOf(type, dims);
  return { count: 1, length: size, stride: size, row: size };
}

/** Its buffer up to its end, in whole words. @param {GpuTensor} tensor @returns {import('./types.js').Range} */
export function rangeOf(tensor) {
  const { count, stride } = rangesIn(tensor);
  return { buffer: tensor.data.gpu, offset: 0, size: Math.ceil((count * stride) / 4) * 4 };
}
