// A file of a model: in memory, or on disk if it is large, so that memory does not have it in addition to its weights
// (docs/design/storage.md#model-files-on-disk).

import { InvalidModel } from '../../common/errors.js';
import { digest, sha256 } from '../../storage/digest.js';

export const LARGE = 32 * 2 ** 20; // bytes: files of this size or larger are on disk
const READ_AHEAD = 2 ** 16; // least bytes of a read
export const PIECE = 2 ** 22; // bytes that are in memory at once
const BUSY = 6; // factor on pauses while runs follow each other

/** When the latest run of this worker's sessions ended, in milliseconds. */
export const lastRun = { ended: -Infinity };

/** @typedef {FileInMemory | FileOnDisk} ModelFile */
/** By path; "" is the model's own file. @typedef {ReadonlyMap<string, ModelFile>} Files */

export class FileInMemory {
  arrival = null;

  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.size = bytes.length;
  }

  /** Whether the page can change it. */
  get isShared() {
    return !(this.bytes.buffer instanceof ArrayBuffer);
  }

  /** @param {number} offset @param {number} size */
  read(offset, size) {
    return this.bytes.subarray(offset, offset + size);
  }

  /** @param {Uint8Array} into @param {number} offset */
  fill(into, offset) {
    into.set(this.read(offset, into.length));
  }

  /** @param {number} [_pause] not needed, because another thread computes the hash */
  hash(_pause) {
    return digest(this.bytes);
  }

  async close() {}
}

/** One buffer for all files, because uncollected garbage takes memory, too. @type {Uint8Array | null} */
let buffer = null;

export class FileOnDisk {
  isShared = false;
  /** Of a file that is read while it arrives. @type {import('./arrival.js').Arrival | null} */
  arrival = null;

  /**
   * @param {number} size @param {(into: Uint8Array, offset: number) => void} read not into shared memory
   * @param {() => Promise<void>} [close]
   */
  constructor(size, read, close = async () => {}) {
    this.size = size;
    this.readInto = read;
    this.close = close;
    /** The latest small read, with the bytes after it. */
    this.ahead = { from: 0, bytes: new Uint8Array() };
    /** @type {Promise<string> | null} */
    this.hashed = null;
    /** Milliseconds between hashed pieces. */
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
    if (size > READ_AHEAD) return this.part(offset, size);
    const { ahead } = this;
    if (offset < ahead.from || offset + size > ahead.from + ahead.bytes.length) {
      const end = this.arrival?.count ?? this.size;
      this.ahead = { from: offset, bytes: this.part(offset, Math.min(READ_AHEAD, end - offset)) };
    }
    const begin = offset - this.ahead.from;
    return this.ahead.bytes.subarray(begin, begin + size);
  }

  /** @param {Uint8Array} into @param {number} offset */
  fill(into, offset) {
    buffer ??= new Uint8Array(PIECE);
    for (const [from, size] of pieces(into.length)) {
      this.readInto(buffer.subarray(0, size), offset + from);
      into.set(buffer.subarray(0, size), from);
    }
  }

  /**
   * Hashes the hashes of the file's pieces, because a hash function takes all its bytes at once. Without pauses nothing
   * else runs meanwhile: hashing 142 MB delayed a token by 640 ms.
   * @param {number} [pause] milliseconds between pieces; the smallest of all calls counts
   */
  hash(pause = 0) {
    this.pause = Math.min(this.pause, pause);
    this.hashed ??= (async () => {
      const piece = new Uint8Array(PIECE);
      const hashes = [];
      for (const [from, size] of pieces(this.size)) {
        this.readInto(piece.subarray(0, size), from);
        hashes.push(await sha256(piece.subarray(0, size)));
        await this.rest();
      }
      return sha256(new TextEncoder().encode(hashes.join()));
    })();
    return this.hashed;
  }

  /** Pauses, for longer while runs follow each other: then hashing makes tokens take 24 ms instead of 20. */
  async rest(pause = this.pause) {
    if (!pause) return;
    await wait(pause);
    if (performance.now() - lastRun.ended < pause) await wait(BUSY * pause);
  }
}

/** @param {number} milliseconds */
const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** @param {number} size @returns {[from: number, size: number][]} */
function pieces(size) {
  return Array.from({ length: Math.ceil(size / PIECE) }, (_, n) => [n * PIECE, Math.min(PIECE, size - n * PIECE)]);
}

/** Only workers can read a Blob in parts, synchronously. @param {Blob} blob @returns {Promise<ModelFile>} */
export async function fileOf(blob) {
  const { FileReaderSync } = /** @type {{ FileReaderSync?: new () => { readAsArrayBuffer(blob: Blob): ArrayBuffer } }} */ (globalThis);
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
