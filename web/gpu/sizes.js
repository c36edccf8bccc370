// Sizes of tensors on the GPU, in bytes.

import { elementSize } from '../common/elements.js';
import { isWide } from './storage.js';

/** In linear memory. @param {string} type @param {readonly number[]} dims */
export const bytesOf = (type, dims) => dims.reduce((size, dim) => size * dim, elementSize(type));

/** Rounded up to whole words, as copies need. @param {string} type @param {readonly number[]} dims */
export const wholeSize = (type, dims) => Math.ceil(bytesOf(type, dims) / 4) * 4;

/** In a session's memory (storage.js). @param {string} type @param {readonly number[]} dims */
export const storedSize = (type, dims) => bytesOf(type, dims) / (isWide(type) ? 2 : 1);

/** Rounds up so that pooled buffers fit more often: to a power of two, or above 1 MiB to a multiple of it. @param {number} size */
export const sizeClass = (size) => (
  size <= 1 << 20 ? 2 ** Math.ceil(Math.log2(Math.max(size, 256))) : Math.ceil(size / (1 << 20)) * (1 << 20));
