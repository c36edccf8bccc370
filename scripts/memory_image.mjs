// Writes the interpreter's memory as web/worker/memory_image.js reads it.

import {
  checksum, checksumBefore, COLUMNS, countOf, FIELDS, hasText, HEAD, LINK, MAGIC, SECTION_AT, STATE, TABLE, TABLE_AT, tableOf, typeIn,
} from '../web/worker/memory_image.js';

/**
 * @param {{ first: Uint32Array, initial: Uint32Array, words: Uint32Array }} memory as a page has it and as it is here before
 * Python runs, and after; that is changed
 * @param {Uint8Array} state what Pyodide says of it
 * @param {{ build: number, stdlib: number, engine: number, own: number[], stack: number, heap: number, end: number, collected: number, text: number }} places
 * own: indices of words that are each start's own; heap to end: addresses of the allocator's chunks; collected: the list
 * of objects that are the collector's; text: the type of strings; and what it belongs to, as FIELDS say
 */
export function imageOf({ first, initial, words }, state, places) {
  const { own, stack, heap, end } = places;
  leaveOut(words, places);
  const top = words.subarray(0, stack >> 2).findLastIndex((word) => word) + 1;
  const statics = words.slice(0, top).map((word, n) => word - initial[n]);
  for (const n of own) statics[n] = 0;
  const { heads, columns, parts } = parted(words, heap, end);
  const keys = [...parts.keys()].sort((a, b) => a - b);
  const fields = {
    ...places, own: own.length, magic: MAGIC, state: STATE / 4, memory: words.byteLength, statics: top,
    initial: checksumBefore(first.subarray(0, top), own), chunks: heads.length, fourths: columns[3].length, parts: keys.length,
  };
  const said = new Uint8Array(STATE);
  said.set(state);
  new Uint32Array(said.buffer)[1] = STATE; // where memory would begin: what is behind has a form of its own
  const all = [
    FIELDS.map((name) => fields[name]), new Uint32Array(said.buffer), own, statics, heads, ...columns,
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

function* chunks(words, heap, end) {
  for (let at = heap >> 2; at < end >> 2;) {
    const count = countOf(words[at + 1]);
    yield { head: words[at + 1], first: at + 2, count };
    at += count + 1;
  }
}

/** What the reader tells from the rest, and what is free. */
function leaveOut(words, { heap, end, collected, text }) {
  for (const { first, count } of chunks(words, heap, end)) leaveTableOut(words, first, count);
  for (const { head, first, count } of chunks(words, heap, end)) {
    if (!(head & 2)) words.fill(0, first + 6, first + count - 1); // free but for the allocator's own
    if (hasText(words, first, count, text)) words[first + 3] = -1;
  }
  for (let node = words[collected >> 2] & ~3; node !== collected;) {
    const next = words[node >> 2] & ~3;
    words[node >> 2] = LINK | (words[node >> 2] & 3);
    words[(node >> 2) + 1] &= 3;
    node = next;
  }
}

/** Where the chunk is a dict's keys: its table holds the number of each entry that has a key, once, and no other. */
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
