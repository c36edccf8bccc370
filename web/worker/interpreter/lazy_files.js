// Files in Python's file system that are fetched when Python first reads them.

import { platform } from '../../common/platform.js';
import { crc32 } from '../../common/crc32.js';
import { failure } from './engine_files.js';

const EIO = 29; // Emscripten's number for an I/O error

/** @type {Error | null} */
let readError = null;

/** Returns and clears the error of a file that could not be fetched. */
export function takeReadError() {
  const error = readError;
  readError = null;
  return error;
}

/**
 * Emscripten's file system, as this file uses it.
 * @typedef {{ writeFile(path: string, bytes: Uint8Array): void, lookupPath(path: string): { node: object },
 *   ErrnoError: new (number: number) => Error }} FileSystem
 */

/** @param {FileSystem} FS @param {string} path @param {string} url @param {number} sum its checksum */
export function addLazyFile(FS, path, url, sum) {
  FS.writeFile(path, new Uint8Array());
  const { node } = FS.lookupPath(path);
  /** @type {Uint8Array | null} */
  let bytes = null;
  const read = () => {
    try {
      return (bytes ??= checked(new Uint8Array(platform.readNow(url)), sum));
    } catch (error) {
      readError = failure(url, error);
      throw new FS.ErrnoError(EIO);
    }
  };
  Object.defineProperties(node, { contents: { get: read }, usedBytes: { get: () => read().length } });
}

/** @param {Uint8Array} bytes @param {number} sum */
function checked(bytes, sum) {
  if (crc32(bytes) !== sum) throw new Error('it is not the one that this page started with: load the page again');
  return bytes;
}
