// A file of a model: in memory or, a large one, on the disk, so that it does not lie there beside its weights
// (docs/design/storage.md#model-files-on-disk).

import { InvalidModel } from '../../common/errors.js';
import { digest, hashed } from '../../storage/digest.js';

/** A file that is at least so large is not kept in memory. */
export const LARGE = 32 * 2 ** 20;
const NEAR = 2 ** 16; // bytes that are read with what is smaller
export const PIECE = 2 ** 22; // bytes that are in memory at once
const BUSY = 6; // pauses

/** Of this worker's sessions, in milliseconds. */
export const lastRun = { ended: -Infinity };

/** @typedef {FileInMemory | FileOnDisk} ModelFile */
/** By path, the model's own under "". @typedef {ReadonlyMap<string, ModelFile>} Files */

export class FileInMemory {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.size = bytes.length;
  }

  /** @param {number} offset @param {number} size */
  read(offset, size) {
    return this.bytes.subarray(offset, offset + size);
  }

  /** @param {Uint8Array} into @param {number} offset */
  fill(into, offset) {
    into.set(this.read(offset, into.length));
  }

  /** @param {number} [_pause] for which there is no need: another thread computes it */
  hash(_pause) {
    return digest(this.bytes);
  }

  async close() {}
}

/** Bytes on their way; one for all files, for what the garbage collector has not taken yet is memory, too. @type {Uint8Array | null} */
let passing = null;

export class FileOnDisk {
  /**
   * @param {number} size @param {(into: Uint8Array, offset: number) => void} read not into shared memory
   * @param {() => Promise<void>} [close]
   */
  constructor(size, read, close = async () => {}) {
    this.size = size;
    this.readInto = read;
    this.close = close;
    /** What was read last of what is small. */
    this.near = { from: 0, bytes: new Uint8Array() };
    /** @type {Promise<string> | null} */
    this.hashed = null;
    /** Milliseconds between pieces that are hashed. */
    this.pause = Infinity;
  }

  /** @param {number} offset @param {number} size */
  part(offset, size) {
    const bytes = new Uint8Array(size);
    this.readInto(bytes, offset);
    return bytes;
  }

  /** @param {number} offset @param {number} size */
  read(offset, size) {
    if (size > NEAR) return this.part(offset, size);
    const { near } = this;
    if (offset < near.from || offset + size > near.from + near.bytes.length) {
      this.near = { from: offset, bytes: this.part(offset, Math.min(NEAR, this.size - offset)) };
    }
    return this.near.bytes.subarray(offset - this.near.from, offset - this.near.from + size);
  }

  /** @param {Uint8Array} into @param {number} offset */
  fill(into, offset) {
    passing ??= new Uint8Array(PIECE);
    for (const [from, size] of pieces(into.length)) {
      this.readInto(passing.subarray(0, size), offset + from);
      into.set(passing.subarray(0, size), from);
    }
  }

  /**
   * Of the hashes of its pieces, for a hash takes all bytes at once. Without pauses nothing else runs until it is known:
   * behind 142 MB a token waited for 640 ms.
   * @param {number} [pause] milliseconds between pieces, while nobody asks for less
   */
  hash(pause = 0) {
    this.pause = Math.min(this.pause, pause);
    this.hashed ??= (async () => {
      const piece = new Uint8Array(PIECE);
      const hashes = [];
      for (const [from, size] of pieces(this.size)) {
        this.readInto(piece.subarray(0, size), from);
        hashes.push(await hashed(piece.subarray(0, size)));
        await this.rest();
      }
      return hashed(new TextEncoder().encode(hashes.join()));
    })();
    return this.hashed;
  }

  /** A pause, and a longer one while runs follow each other: tokens took 24 ms in place of 20 for as long as a file was hashed. */
  async rest() {
    if (!this.pause) return;
    await wait(this.pause);
    if (performance.now() - lastRun.ended < this.pause) await wait(BUSY * this.pause);
  }
}

/** @param {number} milliseconds */
const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** @param {number} size @returns {[from: number, size: number][]} */
function pieces(size) {
  return Array.from({ length: Math.ceil(size / PIECE) }, (_, n) => [n * PIECE, Math.min(PIECE, size - n * PIECE)]);
}

/** A Blob's, which only workers read as they go. @param {Blob} blob @returns {Promise<ModelFile>} */
export async function fileOf(blob) {
  const { FileReaderSync } = /** @type {any} */ (globalThis);
  if (blob.size < LARGE || !FileReaderSync) return new FileInMemory(new Uint8Array(await blob.arrayBuffer()));
  const reader = new FileReaderSync();
  return new FileOnDisk(blob.size, (into, offset) => {
    try {
      into.set(new Uint8Array(reader.readAsArrayBuffer(blob.slice(offset, offset + into.length))));
    } catch (cause) {
      throw new InvalidModel('the file has changed since it was chosen, or cannot be read', { cause });
    }
  });
}
