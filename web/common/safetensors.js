// Reads and writes safetensors files. Twin of pyruntime/training/files/safetensors.py.

import { InvalidInput } from './errors.js';

/** @typedef {{ dtype: string, shape: number[], bytes: Uint8Array }} Stored */

/** @type {Record<string, string>} */
const CODES = { float64: 'F64', float32: 'F32', float16: 'F16', bfloat16: 'BF16', int64: 'I64', int32: 'I32' };
const TYPES = Object.fromEntries(Object.entries(CODES).map(([name, code]) => [code, name]));
const OTHERS = new Set(['BOOL', 'U8', 'I8', 'U16', 'I16', 'U32', 'U64', 'F8_E4M3', 'F8_E5M2', 'F4', 'C64']); // read as if absent
/** @type {Record<string, number>} */
const SIZES = { F64: 8, F32: 4, F16: 2, BF16: 2, I64: 8, I32: 4 };

/** @param {string} text */
const damaged = (text) => new InvalidInput(`this is no checkpoint: ${text}`, { hint: 'give the bytes of a safetensors file' });

/** @param {Record<string, Stored>} tensors @param {Record<string, string>} metadata @returns {Uint8Array} */
export function write(tensors, metadata) {
  /** @type {Record<string, unknown>} */
  const header = { __metadata__: metadata };
  let end = 0;
  for (const [name, { dtype, shape, bytes }] of Object.entries(tensors)) {
    header[name] = { dtype: CODES[dtype], shape, data_offsets: [end, end + bytes.length] };
    end += bytes.length;
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const start = 8 + Math.ceil(text.length / 8) * 8;
  const file = new Uint8Array(start + end).fill(0x20, 8, start);
  new DataView(file.buffer).setBigUint64(0, BigInt(start - 8), true);
  file.set(text, 8);
  let at = start;
  for (const { bytes } of Object.values(tensors)) {
    file.set(bytes, at);
    at += bytes.length;
  }
  return file;
}

/** @param {Uint8Array} file @returns {{ tensors: Record<string, Stored>, metadata: Record<string, string> }} */
export function read(file) {
  const size = file.length < 8 ? Infinity : Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  if (size > Math.min(100_000_000, file.length - 8)) throw damaged('it is cut off');
  const { __metadata__: metadata = {}, ...entries } = headerOf(file.subarray(8, 8 + size));
  if (metadata === null || Object.values(Object(metadata)).some((value) => typeof value !== 'string')) throw damaged('its metadata are no texts');
  const found = Object.entries(entries).map(([name, entry]) => /** @type {const} */ ([name, stored(name, entry, file, 8 + size)]));
  return { tensors: Object.fromEntries(found.filter(([, { dtype }]) => dtype)), metadata };
}

/** @param {Uint8Array} bytes @returns {Record<string, any>} */
function headerOf(bytes) {
  /** @type {unknown} */
  let header = null;
  try {
    header = JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw damaged('its header is not JSON');
  }
  if (typeof header !== 'object' || header === null || Array.isArray(header)) throw damaged('its header is no table');
  return /** @type {Record<string, any>} */ (header);
}

/** @param {string} name @param {any} entry @param {Uint8Array} file @param {number} start @returns {Stored} */
function stored(name, entry, file, start) {
  const { dtype: code, shape, data_offsets: offsets } = Object(entry);
  const isKnown = (OTHERS.has(code) || Object.hasOwn(SIZES, code)) && Array.isArray(shape) && Array.isArray(offsets) && [...shape, ...offsets].every((n) => Number.isSafeInteger(n) && n >= 0);
  if (!isKnown) throw damaged(`tensor "${name}" has no type and place that are known`);
  const [first, last] = offsets;
  const size = OTHERS.has(code) ? last - first : shape.reduce((/** @type {number} */ product, /** @type {number} */ n) => product * n, SIZES[code]);
  if (!(first <= last && last <= file.length - start && last - first === size)) throw damaged(`tensor "${name}" does not fill its place`);
  return { dtype: TYPES[code] ?? '', shape, bytes: file.subarray(start + first, start + last) };
}
