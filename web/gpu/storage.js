// 64-bit integers are 32-bit on the GPU (mirrors providers/webgpu/wgpu_device.py).

import { ExecutionError } from '../common/errors.js';

/** @param {string} dtype */
export const isWide = (dtype) => dtype === 'int64' || dtype === 'uint64';

/**
 * The bytes that the GPU stores. Errors: ExecutionError for integers over 32 bits.
 * @param {Uint8Array} bytes @param {string} dtype @returns {Uint8Array}
 */
export function toGpuStorage(bytes, dtype) {
  if (!isWide(dtype)) return bytes;
  const own = bytes.byteOffset % 4 ? bytes.slice() : bytes;
  const words = new Int32Array(own.buffer, own.byteOffset, own.length / 4);
  const low = new Int32Array(words.length / 2);
  const signed = dtype === 'int64';
  for (let i = 0; i < low.length; i++) {
    low[i] = words[2 * i];
    if (words[2 * i + 1] !== (signed ? low[i] >> 31 : 0)) tooWide(words, i, dtype);
  }
  return new Uint8Array(low.buffer);
}

/** @param {Int32Array} words @param {number} i @param {string} dtype */
function tooWide(words, i, dtype) {
  const low = BigInt(words[2 * i] >>> 0);
  const value = (BigInt(dtype === 'int64' ? words[2 * i + 1] : words[2 * i + 1] >>> 0) << 32n) | low;
  throw new ExecutionError(`${dtype} value ${value} does not fit the GPU's 32-bit integers`, { hint: 'use the provider "wasm"' });
}

/**
 * Writes elements from the GPU in the layout of linear memory.
 * @param {Uint8Array} stored @param {string} dtype @param {Uint8Array} into
 */
export function fromGpuStorage(stored, dtype, into) {
  if (!isWide(dtype)) {
    into.set(stored);
    return;
  }
  const words = new Int32Array(stored.buffer, stored.byteOffset, stored.length / 4);
  const wide = new Int32Array(into.buffer, into.byteOffset, 2 * words.length);
  const signed = dtype === 'int64';
  for (let i = 0; i < words.length; i++) {
    wide[2 * i] = words[i];
    wide[2 * i + 1] = signed ? words[i] >> 31 : 0;
  }
}
