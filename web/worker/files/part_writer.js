// Takes a file of large or unknown size as it arrives: to disk, or to memory where the disk is full or slower than the source.

import { FileInMemory, LARGE, PIECE } from './model_file.js';
import { MovingFile } from './moving_file.js';

/** @import { ScratchFile } from '../../storage/scratch_file.js' */
/** @import { ModelFile } from './model_file.js' */

const TRIAL = 8; // parts after which the disk is judged
const SHARE = 0.5; // of the time: in private windows of Chromium writes took 0.75 of it, on a disk 0.15 to 0.35
const DEVICE_SHARE = 1 / 8; // of the device's memory, which files may take

export class PartWriter {
  /** @param {ScratchFile} scratch @param {number} size bytes, 0 if unknown */
  constructor(scratch, size) {
    this.scratch = scratch;
    this.mayStay = size > 0 && size <= DEVICE_SHARE * 2 ** 30 * (/** @type {any} */ (globalThis.navigator)?.deviceMemory ?? 0);
    /** Null: it is on disk. @type {(Uint8Array<ArrayBuffer> | null)[]} */
    this.parts = [];
    this.part = new Uint8Array(PIECE);
    this.filled = 0;
    this.start = performance.now();
    /** Milliseconds. */
    this.writing = 0;
    this.usesDisk = true;
  }

  /** @param {Uint8Array} bytes */
  take(bytes) {
    for (let done = 0; done < bytes.length;) {
      const some = bytes.subarray(done, done + PIECE - this.filled);
      this.part.set(some, this.filled);
      this.filled += some.length;
      done += some.length;
      if (this.filled === PIECE) this.flush();
    }
  }

  flush() {
    const part = this.part.subarray(0, this.filled);
    const begin = performance.now();
    this.usesDisk &&= !this.scratch.appendUntilFull(part).length;
    const now = performance.now();
    this.writing += now - begin;
    this.parts.push(this.usesDisk ? null : part);
    if (!this.usesDisk) this.part = new Uint8Array(PIECE);
    this.filled = 0;
    if (this.mayStay && this.parts.length === TRIAL) this.usesDisk &&= this.writing < SHARE * (now - this.start);
  }

  /** The file, once it has arrived. @returns {Promise<ModelFile>} */
  async end() {
    const size = this.parts.length * PIECE + this.filled;
    if (this.filled) this.flush();
    const isOnDisk = this.parts[0] === null;
    const file = new MovingFile(size, this.parts, isOnDisk ? this.scratch : null);
    if (size >= LARGE && isOnDisk) return file;
    const made = size < LARGE ? new FileInMemory(file.part(0, size)) : file;
    await this.scratch.remove();
    return made;
  }
}
