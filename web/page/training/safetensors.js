// Reads and writes safetensors files. pyruntime/runtime/safetensors.py has the rules of their headers.

import { checkSize, damagedHeader, headerOf, METADATA, placesIn, TensorPlace } from '../../runtime/safetensors.js';

/** @typedef {{ dtype: string, shape: number[], bytes: Uint8Array }} Stored */

/** @param {Record<string, Stored>} tensors @param {Record<string, string>} metadata @returns {Uint8Array} */
export function write(tensors, metadata) {
  const places = Object.entries(tensors).map(([name, { dtype, shape, bytes }]) => new TensorPlace(name, dtype, shape, 0, bytes.length));
  const text = new TextEncoder().encode(JSON.stringify(Object.fromEntries(headerOf(places, metadata))));
  const start = 8 + Math.ceil(text.length / 8) * 8;
  const file = new Uint8Array(start + places.reduce((sum, { last }) => sum + last, 0)).fill(0x20, 8, start);
  new DataView(file.buffer).setBigUint64(0, BigInt(start - 8), true);
  file.set(text, 8);
  let at = start;
  for (const { bytes } of Object.values(tensors)) {
    file.set(bytes, at);
    at += bytes.length;
  }
  return file;
}

/** @param {Uint8Array} file @returns {{ tensors: Record<string, Stored>, metadata: Record<string, string> }} Errors: InvalidInput */
export function read(file) {
  const size = file.length < 8 ? 0 : Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  checkSize(size, file.length);
  const header = headerIn(file.subarray(8, 8 + size));
  const body = file.subarray(8 + size);
  const found = placesIn(header, body.length).map(({ name, dtype, shape, first, last }) => [name, { dtype, shape, bytes: body.subarray(first, last) }]);
  return { tensors: Object.fromEntries(found), metadata: header[METADATA] ?? {} };
}

/** @param {Uint8Array} bytes @returns {Record<string, any>} */
function headerIn(bytes) {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw damagedHeader();
  }
}
