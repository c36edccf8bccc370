// A large file of which some parts are in memory until the session is ready, such as bytes from the page: weights are copied from there
// straight to their places. Then the parts move to disk, one by one.

import { InvalidModel } from '../../common/errors.js';
import { ScratchFile } from '../../storage/scratch_file.js';
import { Arrival } from './arrival.js';
import { FileOnDisk, PIECE } from './model_file.js';

const AHEAD = 4; // parts that are requested before they are needed
const PAUSE = 50; // ms between parts that are written: runs wait for one

export class MovingFile extends FileOnDisk {
  /**
   * @param {number} size @param {(Uint8Array | null)[]} parts each of PIECE bytes, but the last; others and null: they are on disk
   * @param {ScratchFile | null} [scratch] has the first parts
   */
  constructor(size, parts, scratch = null) {
    const fromDisk = (/** @type {Uint8Array} */ into, /** @type {number} */ at) => /** @type {ScratchFile} */ (this.scratch).read(into, at);
    super(size, (into, offset) => this.copy(into, offset, fromDisk), () => this.end());
    this.parts = parts;
    this.scratch = scratch;
    /** @type {Promise<void | null> | null} */
    this.moving = null;
  }

  /** @override @param {Uint8Array} into @param {number} offset */
  fill(into, offset) {
    this.copy(into, offset, (some, at) => super.fill(some, at)); // which reads the disk not into shared memory
  }

  /** @param {Uint8Array} into @param {number} offset @param {(into: Uint8Array, offset: number) => void} fromDisk */
  copy(into, offset, fromDisk) {
    for (let done = 0; done < into.length;) {
      const [at, part] = [(offset + done) % PIECE, this.parts[Math.floor((offset + done) / PIECE)]];
      const target = into.subarray(done, done + PIECE - at);
      if (part) target.set(part.subarray(at, at + target.length));
      else fromDisk(target, offset + done);
      done += target.length;
    }
  }

  /** Moves the parts to disk, once, as far as there is room. @param {(size: number) => Promise<ScratchFile | null>} scratchFor */
  moveToDisk(scratchFor) {
    this.moving ??= (this.scratch ? Promise.resolve(this.scratch) : scratchFor(this.size)).then((scratch) => scratch && this.moveTo(scratch));
    return this.moving;
  }

  /** @param {ScratchFile} scratch */
  async moveTo(scratch) {
    for (let n = 0; n < this.parts.length; n++) {
      const part = this.parts[n];
      if (!part) continue;
      if (scratch.size !== n * PIECE || scratch.appendUntilFull(part).length) break; // the disk is full: the rest stays in memory
      this.scratch = scratch;
      this.parts[n] = null;
      if (part.buffer instanceof ArrayBuffer) part.buffer.transfer?.(0); // frees it now: a sleeping thread collects no garbage
      await this.rest(PAUSE);
    }
    if (!this.scratch) await scratch.remove();
  }

  async end() {
    this.parts = [];
    await this.scratch?.remove();
  }
}

/**
 * Takes a file from the page.
 * @param {{ port: MessagePort, size: number }} origin @param {AbortSignal} [signal]
 * @param {(file: MovingFile) => void} [begin] called with the file before it arrives @returns {Promise<MovingFile>}
 */
export async function receiveParts({ port, size }, signal, begin = () => {}) {
  const count = Math.ceil(size / PIECE);
  const parts = /** @type {Uint8Array[]} */ ([]);
  const file = new MovingFile(size, parts);
  const arrival = file.arrival = new Arrival();
  begin(file);
  const ask = (/** @type {number} */ n) => n < count && port.postMessage({ from: n * PIECE, to: Math.min(size, (n + 1) * PIECE) });
  try {
    await new Promise((done, failed) => {
      signal?.addEventListener('abort', failed);
      port.onmessage = ({ data }) => {
        if (data.length !== Math.min(PIECE, size - parts.length * PIECE)) return failed(new InvalidModel('the bytes of the model were detached while they were read'));
        if (parts.push(data) === count) done(null);
        else ask(parts.length + AHEAD - 1);
        arrival.reach(Math.min(size, parts.length * PIECE));
      };
      for (let n = 0; n < AHEAD; n++) ask(n);
    });
  } catch (error) {
    arrival.fail(error);
    throw error;
  } finally {
    port.close();
  }
  return file;
}
