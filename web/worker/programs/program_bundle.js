// The compiled Programs of a model as one file, which the browser's cache stores for later pages.

import { parse, toBytes } from './program_file.js';

/** @import { ProgramData } from '../../common/program.js' */
/** @import { Range } from '../files/read_ranges.js' */
/**
 * info, needs: JSON, as a `Compiler` has them; sizes: of the model's files, JSON; reads: what the compiler has read of them; programs:
 * by cache key.
 * @typedef {{ info: string, needs: string, sizes: string, reads: Range[], programs: Map<string, ProgramData> }} Bundle
 */

const WORD = 4; // bytes of the length of the head, which is JSON: { info, needs, sizes, reads, keys, lengths }

/** @param {Bundle} bundle @returns {Uint8Array<ArrayBuffer>} */
export function pack({ programs, ...about }) {
  const files = [...programs.values()].map(({ header, blob }) => toBytes(header, blob));
  const lengths = files.map(({ length }) => length);
  const head = new TextEncoder().encode(JSON.stringify({ ...about, keys: [...programs.keys()], lengths }));
  const bytes = new Uint8Array(lengths.reduce((sum, length) => sum + length, WORD + head.length));
  new DataView(bytes.buffer).setUint32(0, head.length, true);
  bytes.set(head, WORD);
  let at = WORD + head.length;
  for (const file of files) {
    bytes.set(file, at);
    at += file.length;
  }
  return bytes;
}

/** Throws if the file is incomplete or damaged. @param {Uint8Array} bytes @returns {Bundle} */
export function unpack(bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const { keys, lengths, ...about } = JSON.parse(new TextDecoder().decode(bytes.subarray(WORD, WORD + length)));
  let at = WORD + length;
  const programs = lengths.map((/** @type {number} */ size) => {
    const { header, blob } = parse(bytes.subarray(at, at += size));
    return { header, blob, python: { timings: '{}', destroy() {} } };
  });
  return { ...about, programs: new Map(keys.map((/** @type {string} */ key, /** @type {number} */ i) => [key, programs[i]])) };
}
