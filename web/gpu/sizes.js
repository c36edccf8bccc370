// Sizes of tensors on the GPU, in bytes.

import { elementSize } from '../common/elements.js';
import { isWide } from './storage.js';

/** As in linear memory. @param {string} type @param {readonly number[]} dims */
export const bytesOf = (type, dims) => dims.reduce((size, dim) => size * dim, elementSize(type));

/** As copied: in whole words. @param {string} type @param {readonly number[]} dims */
export const wholeSize = (type, dims) => Math.ceil(bytesOf(type, dims) / 4) * 4;

/** In a session's memory (storage.js). @param {string} type @param {readonly number[]} dims */
export const storedSize = (type, dims) => bytesOf(type, dims) / (isWide(type) ? 2 : 1);

/** Sizes that are used again more often: the next power of two, or of the larger ones a multiple of a MiB. @param {number} size */
export const sizeClass = (size) => (size <= 1 << 20 ? 2 ** Math.ceil(Math.log2(Math.max(size, 256))) : Math.ceil(size / (1 << 20)) * (1 << 20));
