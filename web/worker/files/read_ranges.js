// What the compiler has read of a model's files. It reads the graph and small weights, and locates the large ones, so
// what it compiles depends on these bytes alone: the same reads of another file with the same bytes there end in the same Program.

import { sha256 } from '../../storage/digest.js';
import { PIECE } from './model_file.js';

/** @import { Files } from './model_file.js' */
/** @import { ReadFile } from '../../run/environment.js' */
/** Bytes [from, to) of the file with this name. @typedef {[name: string, from: number, to: number]} Range */

const GAP = 256; // bytes between two ranges that become one

export class ReadRanges {
  /** @type {Map<string, Range[]>} */
  byName = new Map();

  /** @param {Range} range */
  add([name, from, to]) {
    const ranges = this.byName.get(name) ?? [];
    this.byName.set(name, ranges);
    const last = ranges.at(-1);
    if (last && from >= last[1] && from <= last[2] + GAP) last[2] = Math.max(last[2], to);
    else ranges.push([name, from, to]);
  }

  /** The same function, whose reads are recorded. @param {ReadFile} read @returns {ReadFile} */
  recorded(read) {
    return (offset, size, name = '') => {
      const bytes = read(offset, size, name);
      this.add([name, offset, offset + size]);
      return bytes;
    };
  }

  /** Sorted, without overlaps. @returns {Range[]} */
  all() {
    const joined = new ReadRanges();
    for (const name of [...this.byName.keys()].sort()) {
      for (const range of [.../** @type {Range[]} */ (this.byName.get(name))].sort((a, b) => a[1] - b[1])) joined.add(range);
    }
    return [...joined.byName.values()].flat();
  }
}

/** Paths and sizes, as JSON. @param {Files} files */
export const sizesOf = (files) => JSON.stringify([...files].map(([path, { size }]) => [path, size]).sort());

/**
 * A hash of the sizes of files and of their bytes in these ranges. Throws for files in shared memory: the page may have changed them
 * since they were compiled.
 * @param {Files} files @param {ReadFile} read reads these files @param {Range[]} ranges
 */
export async function digestOf(files, read, ranges) {
  if ([...files.values()].some(({ isShared }) => isShared)) throw new TypeError('shared memory has no hash');
  const hashes = [sizesOf(files), JSON.stringify(ranges)];
  const piece = new Uint8Array(Math.min(PIECE, ranges.reduce((sum, [, from, to]) => sum + to - from, 0)));
  let filled = 0;
  for (const [name, from, to] of ranges) {
    for (let at = from; at < to;) {
      const size = Math.min(piece.length - filled, to - at);
      piece.set(read(at, size, name), filled);
      [at, filled] = [at + size, filled + size];
      if (filled === piece.length) [filled] = [0, hashes.push(await sha256(piece))];
    }
  }
  hashes.push(await sha256(piece.subarray(0, filled)));
  return sha256(new TextEncoder().encode(hashes.join()));
}
