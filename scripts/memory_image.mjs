// Writes an image of the interpreter's memory in the format that web/worker/interpreter/memory_image.js reads.

import { checksum, FIELDS, HEAD, MAGIC, SECTION_AT, STATE, sumBefore } from '../web/worker/interpreter/memory_image.js';

/** Marks a link of the garbage collector's list to the next object; the low two bits of a link are flags. */
export const LINK = 0x5ca1ab18;
/** Marks the place of a dict's table. */
export const TABLE = 0x7ab1e5ed;
/** Words of a dict's keys before the table. */
const TABLE_AT = 5;
/** The bits of a chunk's head besides its size. */
const FLAGS = 7;
/** Number of words at the beginning of chunks that are stored in columns. */
const COLUMNS = 4;
const PARTS = 2048; // most parts: the hash table of scripts/restore_wasm.py has twice as many places
const SHORT = 2; // so many zeros take no more words than the start of a run

/**
 * @param {{ first: Uint32Array, initial: Uint32Array, words: Uint32Array }} memory before Python runs, in a page
 * (first) and here (initial), and after it (words, which is changed)
 * @param {Uint8Array} state Pyodide's description of it @param {Uint8Array} bytes of the code that restores it, in
 * whole words
 * @param {{ build: number, stdlib: number, engine: number, own: number[], stack: number, heap: number, end: number, collected: number, text: number }} places
 * own: indices of words that differ at each start; heap to end: addresses of the allocator's chunks; collected: the
 * garbage collector's list of objects; text: the type of strings; the others are named in FIELDS
 */
export function imageOf({ first, initial, words }, state, bytes, places) {
  const { own, stack, heap, end } = places;
  leaveOut(words, places);
  const top = words.subarray(0, stack >> 2).findLastIndex((word) => word) + 1;
  const statics = words.slice(0, top).map((word, n) => word - initial[n]);
  for (const n of own) statics[n] = 0;
  const runs = runsOf(statics);
  const { heads, columns, parts } = parted(words, heap, end);
  const keys = [...parts.keys()].sort((a, b) => a - b);
  if (keys.length > PARTS) throw new Error(`there are objects of ${keys.length} types`);
  const code = new Uint32Array(bytes.slice().buffer);
  const fields = {
    ...places, own: own.length, magic: MAGIC, state: STATE / 4, memory: words.byteLength, statics: top, runs: runs.length,
    initial: sumBefore(first, own, () => checksum(first.subarray(0, top))), code: code.length, codeSum: checksum(code),
    chunks: heads.length, fourths: columns[3].length, parts: keys.length,
  };
  const said = new Uint8Array(STATE);
  said.set(state);
  new Uint32Array(said.buffer)[1] = STATE; // where memory would begin; the data after it has its own format
  const all = [
    FIELDS.map((name) => fields[name]), code, new Uint32Array(said.buffer), own, runs, heads, ...columns,
    keys.flatMap((key) => [key, parts.get(key).length]), ...keys.map((key) => parts.get(key)),
  ];
  const file = new Uint32Array(all.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of all) {
    file.set(part, at);
    at += part.length;
  }
  file[FIELDS.indexOf('sum')] = checksum(file.subarray(FIELDS.indexOf('sum') + 1));
  return asModule(new Uint8Array(file.buffer));
}

/** Encodes words as runs: number of zeros to skip, number of words, the words. A run may contain a few zeros. @param
 * {Uint32Array} words */
function runsOf(words) {
  const runs = [];
  let end = 0; // of the last run
  let counted = 0; // the index of its count
  words.forEach((word, n) => {
    if (!word) return;
    if (counted && n - end <= SHORT) {
      while (end < n) runs.push(words[end++]);
    } else {
      runs.push(n - end, 0);
      counted = runs.length - 1;
    }
    runs.push(word);
    end = n + 1;
    runs[counted] = runs.length - 1 - counted;
  });
  return runs;
}

/** @param {Uint8Array} content */
function asModule(content) {
  const made = new Uint8Array(HEAD.length + content.length);
  made.set(HEAD);
  const size = made.length - SECTION_AT - 5;
  for (let n = 0; n < 5; n++) made[SECTION_AT + n] = ((size >>> (7 * n)) & 0x7f) | (n < 4 ? 0x80 : 0);
  made.set(content, HEAD.length);
  if (!WebAssembly.validate(made)) throw new Error('the image is no WebAssembly');
  return made;
}

/** Returns the type of the object in a chunk, if an object is at its beginning or after the collector's links; else 0.
 * @param {Uint32Array} words @param {number} at first word @param {number} count of words @param {number} heap */
function typeIn(words, at, count, heap) {
  const isType = (/** @type {number} */ word) => word > 4096 && word < heap;
  const [one, other] = [words[at + 1], count < COLUMNS ? 0 : words[at + 3]];
  return isType(one) ? one : isType(other) ? other : 0;
}

/** Whether the chunk contains an ASCII string, whose hash can be computed from its text. @param {Uint32Array} words
 * @param {number} at @param {number} count @param {number} text type of strings */
const hasText = (words, at, count, text) => words[at + 1] === text && (words[at + 4] & 0x60) === 0x60 && count === Math.max(3, (((words[at + 2] + 32) & ~7) >> 2) - 1);

/** Returns the number of words in a chunk, from its head. @param {number} head */
export const countOf = (head) => ((head & ~FLAGS) >> 2) - 1;

/**
 * Computes the hash table of a dict's keys, which has the number of each entry: open addressing, in the order of the
 * entries. Source: build_indices_generic and build_indices_unicode of CPython's Objects/dictobject.c
 * @param {Uint32Array} words @param {number} first word of the keys
 */
function tableOf(words, first) {
  const [log, logBytes, kind] = [0, 8, 16].map((bits) => (words[first + 1] >> bits) & 0xff);
  const mask = 2 ** log - 1;
  const table = new [Int8Array, Int16Array, Int32Array][logBytes - log](mask + 1).fill(-1);
  const width = kind ? 2 : 3; // keys that are not all strings have their hashes beside them
  const entries = first + TABLE_AT + (table.byteLength >> 2);
  for (let n = 0; n < words[first + 4]; n++) {
    const entry = entries + n * width;
    const key = words[entry + width - 2];
    if (!key) continue; // a deleted entry
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

function* chunks(words, heap, end) {
  for (let at = heap >> 2; at < end >> 2;) {
    const count = countOf(words[at + 1]);
    yield { head: words[at + 1], first: at + 2, count };
    at += count + 1;
  }
}

/** Clears words that the reader can compute, and free memory. */
function leaveOut(words, { heap, end, collected, text }) {
  for (const { first, count } of chunks(words, heap, end)) leaveTableOut(words, first, count);
  for (const { head, first, count } of chunks(words, heap, end)) {
    if (!(head & 2)) words.fill(0, first + 6, first + count - 1); // free, except for words of the allocator
    if (hasText(words, first, count, text)) words[first + 3] = -1;
  }
  for (let node = words[collected >> 2] & ~3; node !== collected;) {
    const next = words[node >> 2] & ~3;
    words[node >> 2] = LINK | (words[node >> 2] & 3);
    words[(node >> 2) + 1] &= 3;
    node = next;
  }
}

/** Replaces the table of a chunk that contains a dict's keys. Such a table has the number of each entry with a key
 * exactly once. */
function leaveTableOut(words, first, count) {
  const [log, logBytes, kind] = [0, 8, 16].map((bits) => (words[first + 1] >> bits) & 0xff);
  const table = 2 ** logBytes / 4;
  const entries = words[first + 4];
  const fits = log >= 3 && logBytes >= log && logBytes <= log + 2 && kind <= 2
    && entries < 2 ** log && TABLE_AT + table + entries * (kind ? 2 : 3) <= count;
  if (count > TABLE_AT && words[first + TABLE_AT] === TABLE) throw new Error('something is what stands for a table');
  if (!fits) return;
  const there = words.subarray(first + TABLE_AT, first + TABLE_AT + table);
  const made = tableOf(words, first);
  const numbers = (kept) => kept.filter((n) => n >= 0).sort().join();
  if (numbers(new made.constructor(there.slice().buffer)) === numbers(made)) there.fill(0).set([TABLE]);
}

function parted(words, heap, end) {
  const heads = [];
  const columns = Array.from({ length: COLUMNS }, () => []);
  const parts = new Map();
  for (const { head, first, count } of chunks(words, heap, end)) {
    heads.push(head);
    for (let n = 0; n < COLUMNS && n < count; n++) columns[n].push(words[first + n]);
    if (count <= COLUMNS) continue;
    const key = typeIn(words, first, count, heap);
    if (!parts.has(key)) parts.set(key, []);
    const part = parts.get(key);
    for (let n = first + COLUMNS; n < first + count; n++) part.push(words[n]);
  }
  return { heads, columns, parts };
}
