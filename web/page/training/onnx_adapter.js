// Reads `.onnx_adapter` files, ONNX Runtime's format of adapters (pyruntime/runtime/onnx_adapter.py).

import { AdapterBuffer, MARK } from '../../runtime/onnx_adapter.js';

/** @import { Stored } from './safetensors.js' */

/** @param {Uint8Array} file */
export const isOnnxAdapter = (file) => String.fromCharCode(...file.subarray(4, 8)) === MARK;

/** @param {Uint8Array} file @returns {Record<string, Stored>} Errors: InvalidInput for a damaged file */
export function read(file) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const number = (/** @type {number} */ at, /** @type {number} */ width) => (
    width === 2 ? view.getInt16(at, true) : width === 4 ? view.getInt32(at, true) : Number(view.getBigInt64(at, true)));
  const text = (/** @type {number} */ first, /** @type {number} */ last) => new TextDecoder().decode(file.subarray(first, last));
  const found = new AdapterBuffer(file.length, number, text).tensors();
  return Object.fromEntries(found.map(({ name, dtype, shape, first, last }) => [name, { dtype, shape, bytes: file.subarray(first, last) }]));
}
