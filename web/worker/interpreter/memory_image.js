// The interpreter's memory after its start, as a file of the package: scripts/memory_image.mjs writes it
// (docs/design/startup.md#memory-image).
//
// It stores static memory as differences from the data segments of the WebAssembly, without zeros. The heap's chunks are grouped by
// the type of the object in them, because similar objects compress better together. It leaves out what can be computed: hashes of
// strings, the tables of dicts and the links of Python's garbage collector. It includes the code that restores it, which
// scripts/restore_wasm.py writes.

import { BUILD } from '../build.js';

/**
 * The file is a WebAssembly module with one custom section, because hosts compress such files. The section's size is at SECTION_AT,
 * in five bytes of seven bits, so that the words after HEAD are aligned to four bytes.
 */
export const HEAD = Uint8Array.from('\0asm\x01\0\0\0\0\0\0\0\0\0\x05image', (byte) => byte.charCodeAt(0));
export const SECTION_AT = 9;
/**
 * The first words; all words are unsigned and have 32 bits. build: number of the build; stdlib, engine: checksums of the archives
 * whose tables of contents are in memory.
 */
export const FIELDS = [
  'magic', 'sum', 'build', 'codeSum', 'code', 'stdlib', 'engine', 'state', 'memory', 'statics', 'runs', 'initial', 'own', 'heap', 'end',
  'collected', 'text', 'chunks', 'fourths', 'parts',
];
export const MAGIC = 0x32696d70;
/** Bytes of Pyodide's own description of the memory. */
export const STATE = 1024;
/** Bytes of a table that the restoring code needs. */
const CURSORS = 8 * 4096;

/** @param {number} sum @param {number} word */
const added = (sum, word) => Math.imul(sum ^ word, 0x9e3779b1) ^ (sum >>> 15);

/** Four interleaved sums, because each step depends on the one before. @param {ArrayLike<number>} words */
export function checksum(words) {
  const sums = [0, 1, 2, 3];
  const fours = words.length & ~3;
  for (let n = 0; n < words.length; n++) sums[n < fours ? n & 3 : 0] = added(sums[n < fours ? n & 3 : 0], words[n]);
  return sums.slice(1).reduce(added, sums[0]) >>> 0;
}

/**
 * The checksum of memory before Python runs. Words that differ between starts count as zeros.
 * @param {Uint32Array} words @param {ArrayLike<number>} own indices of those words @param {() => number} sum
 */
export function sumBefore(words, own, sum) {
  const saved = Array.from(own, (n) => words[n]);
  for (let n = 0; n < own.length; n++) words[own[n]] = 0;
  const found = sum();
  for (let n = 0; n < own.length; n++) words[own[n]] = saved[n];
  return found >>> 0;
}

/** @param {string} name of a build: a hash in hexadecimal digits */
export const buildNumber = (name) => Number.parseInt(name.slice(0, 8), 16);

/** @param {Uint8Array<ArrayBuffer>} bytes */
export function readImage({ buffer }, build = BUILD) {
  const words = new Uint32Array(buffer, HEAD.length);
  /** @type {Record<string, number>} */
  const fields = Object.fromEntries(FIELDS.map((name, n) => [name, words[n]]));
  if (fields.magic !== MAGIC) throw new Error('it is no image of memory');
  if (fields.build !== buildNumber(build)) throw new Error('it is of another build');
  let at = FIELDS.length;
  const take = (/** @type {number} */ count) => words.subarray(at, at += count);
  const [code, state, own] = [take(fields.code), take(fields.state), take(fields.own)];
  if (checksum(code) !== fields.codeSum) throw new Error('it is damaged');
  return { fields, sums: { stdlib: fields.stdlib, engine: fields.engine }, words, code, state, own };
}

/**
 * @typedef {{ HEAPU8: Uint8Array, HEAPU32: Uint32Array, memory: WebAssembly.Memory, growMemory(size: number): boolean,
 *   _PyObject_Hash(address: number): number }} EmscriptenModule
 */

/**
 * Restores the memory.
 * @param {EmscriptenModule} module Pyodide's, before Python runs @param {ReturnType<typeof readImage>} image
 * @returns {Uint8Array} Pyodide's description of it
 */
export function restore(module, { fields, words: image, code, state, own }) {
  const places = placesOf(fields, image.length);
  const size = Math.max(fields.memory, places.top);
  if (module.HEAPU8.length < size && !module.growMemory(size)) throw new Error('there is no room for it');
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(code.slice()), { env: { memory: module.memory } });
  const { checksum, fill, tables } = /** @type {Record<string, (...addresses: number[]) => number>} */ (/** @type {unknown} */ (exports));
  const words = module.HEAPU32;
  if (sumBefore(words, own, () => checksum(0, 4 * fields.statics)) !== fields.initial) throw new Error('it is of another interpreter');
  words.set(image, places.image >> 2);
  if (checksum(places.image + 8, places.end) >>> 0 !== fields.sum) throw new Error('it is damaged');
  fill(...places.fill, fields.heap, fields.collected, fields.text);
  const listed = (/** @type {number} */ list) => words.subarray((list >> 2) + 1, (list >> 2) + 1 + words[list >> 2]);
  for (const text of listed(places.texts)) module._PyObject_Hash(text);
  tables(places.tables + 4, places.tables + 4 + 4 * words[places.tables >> 2]);
  words.fill(0, places.image >> 2, places.top >> 2);
  return new Uint8Array(state.slice().buffer);
}

/**
 * Addresses of the image, which lies after the heap while it is read, and of its parts.
 * @param {Record<string, number>} fields @param {number} length in words
 */
function placesOf({ code, state, own, runs, chunks, fourths, parts, end: heapEnd }, length) {
  const image = (heapEnd + 7) & ~7;
  const [end, list] = [image + 4 * length, 4 * (chunks + 1)];
  let at = image + 4 * (FIELDS.length + code + state + own);
  const begins = [runs, chunks, chunks, chunks, chunks, fourths, 2 * parts].map((count) => (at += 4 * count) - 4 * count);
  const [cursors, texts, tables, top] = [end, end + CURSORS, end + CURSORS + list, end + CURSORS + 2 * list];
  return { image, end, texts, tables, top, fill: [...begins, at, cursors, texts, tables] };
}
