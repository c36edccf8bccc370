// Takes a file of large or unknown size as it arrives: to disk, or to memory where the disk is full or slower than the source.

import { Arrival } from './arrival.js';
import { FileInMemory, LARGE, PIECE } from './model_file.js';
import { MovingFile } from './moving_file.js';

/** @import { ScratchFile } from '../../storage/scratch_file.js' */
/** @import { ModelFile } from './model_file.js' */

const TRIAL = 8 * PIECE; // bytes after which the disk is judged
const SHARE = 0.6; // of the time: in private windows of Chromium writes took 0.75 of it, on a disk 0.15 to 0.25
const DEVICE_SHARE = 1 / 8; // of the device's memory, which files may take

export class PartWriter {
  /** @param {ScratchFile} scratch @param {number} size bytes, 0 if unknown */
  constructor(scratch, size) {
    this.scratch = scratch;
    /** Whether the disk is not yet judged. */
    this.isOpen = size > 0 && size <= DEVICE_SHARE * 2 ** 30 * (/** @type {{ deviceMemory?: number } | undefined} */ (globalThis.navigator)?.deviceMemory ?? 0);
    this.usesDisk = true;
    this.start = performance.now();
    /** Milliseconds. */
    this.writing = 0;
    /** Null: it is on disk. @type {(Uint8Array<ArrayBuffer> | null)[]} */
    this.parts = [];
    /** Bytes of the last part. */
    this.filled = PIECE;
    this.file = new MovingFile(size, this.parts, scratch);
    this.arrival = this.file.arrival = new Arrival();
  }

  /** @param {Uint8Array} bytes */
  take(bytes) {
    const left = this.usesDisk ? this.write(bytes) : bytes;
    for (let done = 0; done < left.length;) {
      if (this.filled === PIECE) this.begin(0);
      const some = left.subarray(done, done + PIECE - this.filled);
      this.parts[this.parts.length - 1]?.set(some, this.filled);
      this.filled += some.length;
      done += some.length;
    }
    this.arrival.reach(this.arrival.count + bytes.length);
  }

  /** Begins a part in memory, of which so many bytes are there. @param {number} filled */
  begin(filled) {
    const part = new Uint8Array(PIECE);
    this.parts.push(part);
    this.filled = filled;
    return part.subarray(0, filled);
  }

  /** Writes to disk as long as that is right. @param {Uint8Array} bytes @returns {Uint8Array} the rest */
  write(bytes) {
    const { scratch } = this;
    const begin = performance.now();
    const left = scratch.appendUntilFull(bytes);
    const now = performance.now();
    this.writing += now - begin;
    const isJudged = this.isOpen && scratch.size >= TRIAL;
    this.isOpen &&= !isJudged;
    if (left.length || isJudged && this.writing > SHARE * (now - this.start)) this.leaveDisk();
    return left;
  }

  /** From now on all is in memory. A part that is not whole leaves the disk. */
  leaveDisk() {
    const { scratch, parts } = this;
    this.usesDisk = false;
    parts.push(...Array(Math.floor(scratch.size / PIECE)).fill(null));
    const from = parts.length * PIECE;
    if (scratch.size > from) scratch.read(this.begin(scratch.size - from), from);
    scratch.size = from;
  }

  /** The file, once it has arrived. @returns {Promise<ModelFile>} */
  async end() {
    const { scratch, parts, file } = this;
    file.size = this.arrival.count;
    if (this.usesDisk && file.size >= LARGE) return file;
    if (this.usesDisk) this.leaveDisk();
    const last = parts.at(-1);
    if (last) parts[parts.length - 1] = last.subarray(0, this.filled);
    if (parts[0] === null && file.size >= LARGE) return file;
    const whole = file.size < LARGE ? new FileInMemory(file.part(0, file.size)) : file;
    file.scratch = null;
    await scratch.remove();
    return whole;
  }
}
