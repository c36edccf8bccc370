// The interpreter's memory after its start, as a file of the package: scripts/memory_image.mjs writes it (ADR 71).
//
// Static memory is kept as differences from what the WebAssembly has in itself. The heap's chunks are parted by the type
// of the object in them, for like things compress together; what follows from the rest is left out: hashes of strings,
// the tables of dicts and the links of Python's garbage collector.

import { BUILD } from './build.js';

/**
 * What it begins with: a WebAssembly module, for hosts compress those, in which there is nothing but a section of another
 * kind (its size is at SECTION_AT, in five bytes of seven bits). So the words behind lie at a multiple of four.
 */
export const HEAD = Uint8Array.from('\0asm\x01\0\0\0\0\0\0\0\0\0\x05image', (byte) => byte.charCodeAt(0));
export const SECTION_AT = 9;
/**
 * Its first words, unsigned numbers of 32 bits as all of them. build: of the name of the build; stdlib, engine: checksums of
 * the archives whose tables of contents are in memory.
 */
export const FIELDS = ['magic', 'sum', 'build', 'stdlib', 'engine', 'state', 'memory', 'statics', 'initial', 'own', 'heap', 'end', 'collected', 'text', 'chunks', 'fourths', 'parts'];
export const MAGIC = 0x31696d70;
/** In the place of a link to the next object that the collector knows; links have two bits of flags. */
export const LINK = 0x5ca1ab18;
const LINK_FLAGS = 3;
/** In the place of a dict's table. */
export const TABLE = 0x7ab1e5ed;
/** Words of a dict's keys before the table. */
export const TABLE_AT = 5;
/** Bytes that what Pyodide says of a memory has in a file. */
export const STATE = 1024;
/** Of a chunk, beside its size. */
const FLAGS = 7;
/** Words at the beginning of chunks that are columns. */
export const COLUMNS = 4;

/** What is in a chunk: the type of its object, if it has one at its beginning or after the collector's links. @param {Uint32Array} words @param {number} at first word @param {number} count of words @param {number} heap */
export function typeIn(words, at, count, heap) {
  const isType = (/** @type {number} */ word) => word > 4096 && word < heap;
  const [one, other] = [words[at + 1], count < COLUMNS ? 0 : words[at + 3]];
  return isType(one) ? one : isType(other) ? other : 0;
}

/** Whether a string is in it, of ASCII, whose hash can be told from its text. @param {Uint32Array} words @param {number} at @param {number} count @param {number} text type of strings */
export const hasText = (words, at, count, text) => words[at + 1] === text && (words[at + 4] & 0x60) === 0x60 && count === Math.max(3, (((words[at + 2] + 32) & ~7) >> 2) - 1);

/** Words of a chunk's content, by its head. @param {number} head */
export const countOf = (head) => ((head & ~FLAGS) >> 2) - 1;

/** @param {Uint32Array} words */
export function checksum(words) {
  let sum = 0;
  for (let n = 0; n < words.length; n++) sum = Math.imul(sum ^ words[n], 0x9e3779b1) ^ (sum >>> 15);
  return sum >>> 0;
}

/** Of memory before Python runs. @param {Uint32Array} words @param {ArrayLike<number>} own which of them are each start's own */
export function checksumBefore(words, own) {
  const kept = words.slice();
  for (let n = 0; n < own.length; n++) kept[own[n]] = 0;
  return checksum(kept);
}

/**
 * The table of a dict's keys, from hash to number of the entry: open addressing, in the order of the entries.
 * Source: build_indices_generic and build_indices_unicode of CPython's Objects/dictobject.c
 * @param {Uint32Array} words @param {number} first word of the keys
 */
export function tableOf(words, first) {
  const [log, logBytes, kind] = [0, 8, 16].map((bits) => (words[first + 1] >> bits) & 0xff);
  const mask = 2 ** log - 1;
  const table = new [Int8Array, Int16Array, Int32Array][logBytes - log](mask + 1).fill(-1);
  const width = kind ? 2 : 3; // keys that are not all strings have their hashes beside them
  const entries = first + TABLE_AT + (table.byteLength >> 2);
  for (let n = 0; n < words[first + 4]; n++) {
    const entry = entries + n * width;
    const key = words[entry + width - 2];
    if (!key) continue; // it was deleted
    const hash = kind ? words[(key >> 2) + 3] : words[entry];
    let at = hash & mask;
    for (let rest = hash; table[at] !== -1;) {
      rest >>>= 5;
      at = (at * 5 + rest + 1) & mask;
    }
    table[at] = n;
  }
  return table;
}

/** @param {string} name of a build, a hash in hexadecimal digits */
export const buildNumber = (name) => Number.parseInt(name.slice(0, 8), 16);

/** @param {Uint8Array<ArrayBuffer>} bytes */
export function readImage({ buffer }, build = BUILD) {
  const words = new Uint32Array(buffer, HEAD.length);
  const fields = Object.fromEntries(FIELDS.map((name, n) => [name, words[n]]));
  if (fields.magic !== MAGIC) throw new Error('it is no image of memory');
  if (fields.sum !== checksum(words.subarray(FIELDS.indexOf('sum') + 1))) throw new Error('it is damaged');
  if (fields.build !== buildNumber(build)) throw new Error('it is of another build');
  let at = FIELDS.length;
  const take = (/** @type {number} */ count) => words.subarray(at, at += count);
  const state = take(fields.state);
  const own = take(fields.own);
  const statics = take(fields.statics);
  const heads = take(fields.chunks);
  const columns = [take(fields.chunks), take(fields.chunks), take(fields.chunks), take(fields.fourths)];
  const table = take(2 * fields.parts);
  const parts = new Map(Array.from({ length: fields.parts }, (_, n) => [table[2 * n], take(table[2 * n + 1])]));
  if (at !== words.length) throw new Error('it is not whole');
  return { ...fields, sums: { stdlib: fields.stdlib, engine: fields.engine }, state, own, statics, heads, columns, parts };
}

/** Puts the memory back as it was. @param {any} module Pyodide's, in which Python has not run @param {ReturnType<typeof readImage>} image @returns {Uint8Array} what Pyodide says of it */
export function restore(module, image) {
  const { memory, initial, own } = /** @type {any} */ (image);
  if (module.HEAPU8.length < memory && !module.growMemory(memory)) throw new Error('there is no room for it');
  const words = module.HEAPU32;
  const { statics } = image;
  if (checksumBefore(words.subarray(0, statics.length), own) !== initial) throw new Error('it is of another interpreter');
  for (let n = 0; n < statics.length; n++) words[n] += statics[n];
  fillHeap(words, image);
  complete(words, image, module._PyObject_Hash);
  return new Uint8Array(image.state.buffer, image.state.byteOffset, image.state.byteLength);
}

/** @param {Uint32Array} words @param {any} image */
function fillHeap(words, { heap, heads, columns, parts }) {
  const places = columns.map(() => 0);
  /** @type {Map<number, any>} */
  const cursors = new Map(Array.from(parts, ([key, part]) => [key, { part, from: 0 }]));
  let at = heap >> 2;
  for (let chunk = 0; chunk < heads.length; chunk++) {
    const count = countOf(heads[chunk]);
    words[at + 1] = heads[chunk];
    at += 2;
    for (let n = 0; n < COLUMNS && n < count; n++) words[at + n] = columns[n][places[n]++];
    if (count > COLUMNS) {
      const cursor = cursors.get(typeIn(words, at, count, heap));
      const { part, from } = cursor;
      for (let n = 0; n < count - COLUMNS; n++) words[at + COLUMNS + n] = part[from + n];
      cursor.from += count - COLUMNS;
    }
    at += count - 1;
  }
}

/** What was left out. @param {Uint32Array} words @param {any} image @param {(address: number) => void} hash makes a string keep its hash */
function complete(words, { heap, end, collected, text }, hash) {
  /** @type {number[]} */
  const tables = [];
  let before = collected >> 2;
  for (let at = heap >> 2; at < end >> 2;) {
    const count = countOf(words[at + 1]);
    const first = at + 2;
    for (const link of [first, first + 2]) if (((words[link] & ~LINK_FLAGS) >>> 0) === LINK) before = join(words, before, link);
    if (hasText(words, first, count, text)) hash(first << 2);
    if (count > TABLE_AT && words[first + TABLE_AT] === TABLE) tables.push(first);
    at = first + count - 1;
  }
  join(words, before, collected >> 2);
  for (const first of tables) words.set(new Uint32Array(tableOf(words, first).buffer), first + TABLE_AT); // from the hashes
}

/** Links two objects, by the places of their links. @param {Uint32Array} words @param {number} before @param {number} after */
function join(words, before, after) {
  words[before] = (after << 2) | (words[before] & LINK_FLAGS);
  words[after + 1] = (before << 2) | (words[after + 1] & LINK_FLAGS);
  return after;
}
