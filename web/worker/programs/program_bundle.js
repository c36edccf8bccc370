// The compiled Programs of a model as one file, which the browser's cache stores for later pages.

import { parse, toBytes } from './program_file.js';

/** @import { ProgramData } from '../../common/program.js' */
/** @import { Range } from '../files/read_ranges.js' */
/**
 * info, needs: JSON, as a `Compiler` has them; reads: what the compiler has read of the model's files; programs: by cache key.
 * @typedef {{ info: string, needs: string, reads: Range[], programs: Map<string, ProgramData> }} Bundle
 */

const WORD = 4; // bytes of the length of the head, which is JSON: { info, needs, reads, keys, sizes }

/** @param {Bundle} bundle @returns {Uint8Array<ArrayBuffer>} */
export function pack({ info, needs, reads, programs }) {
  const files = [...programs.values()].map(({ header, blob }) => toBytes(header, blob));
  const sizes = files.map(({ length }) => length);
  const head = new TextEncoder().encode(JSON.stringify({ info, needs, reads, keys: [...programs.keys()], sizes }));
  const bytes = new Uint8Array(sizes.reduce((sum, size) => sum + size, WORD + head.length));
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
  const { info, needs, reads, keys, sizes } = JSON.parse(new TextDecoder().decode(bytes.subarray(WORD, WORD + length)));
  let at = WORD + length;
  const programs = sizes.map((/** @type {number} */ size) => {
    const { header, blob } = parse(bytes.subarray(at, at += size));
    return { header, blob, python: { timings: '{}', destroy() {} } };
  });
  return { info, needs, reads, programs: new Map(keys.map((/** @type {string} */ key, /** @type {number} */ i) => [key, programs[i]])) };
}
