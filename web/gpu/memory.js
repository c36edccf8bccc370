// A session's memory on the GPU: one range of addresses over a few large buffers, and what moves in and out of it.

import { USAGE } from './flags.js';
import { GPU } from '../run/arena.js';
import { toGpuStorage } from './storage.js';

/** @typedef {import('./device.js').Gpu} Gpu */
/** @typedef {{ buffer: GPUBuffer, size: number }} OwnBuffer a tensor in a buffer of its own, and its bytes */

/** Of the record of faults: number of a node whose indices are checked, extent, index (int32), and a word that web/gpu/moves.js writes. */
export const FAULT_BYTES = 16;

const STEP = 256 << 20; // a buffer at most doubles, and grows by no more than this beyond what is needed

export class GpuMemory {
  /** @param {Gpu} gpu */
  constructor(gpu) {
    this.gpu = gpu;
    const { buffer_bytes, binding_bytes } = gpu.adapter;
    /** Bytes of a buffer; no tensor lies across two. */
    this.chunk = Math.floor(Math.min(buffer_bytes, binding_bytes, 2 ** 31) / 256) * 256;
    /** @type {GPUBuffer[]} */
    this.buffers = [];
    /** Tensors of the run in progress that lie in a GPUBuffer of their own and not at their address, by their number. @type {Map<number, OwnBuffer>} */
    this.ownBuffers = new Map();
    /** Counts the times that a buffer was replaced: bind groups made before are stale. */
    this.generation = 0;
    /** Commands not yet submitted. @type {GPUCommandEncoder | null} */
    this.encoder = null;
    /** What error scopes will have caught. @type {import('./device.js').Caught[]} */
    this.pending = [];
    /** @type {GPUBuffer | null} */
    this.faultRecord = null;
  }

  /** The buffer of the record of faults. */
  get faults() {
    const usage = USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST;
    this.faultRecord ??= this.gpu.catchErrors(() => this.gpu.device.createBuffer({ size: FAULT_BYTES, usage, label: 'faults' }), this.pending);
    return this.faultRecord;
  }

  /** Throws what went wrong since. */
  throwErrors() {
    return this.gpu.throwErrors(this.pending);
  }

  get hasPendingErrors() {
    return this.pending.length + this.gpu.pending.length > 0;
  }

  /** Makes addresses up to `end` usable. @param {number} end */
  ensure(end) {
    const size = end - GPU;
    for (let n = 0; n * this.chunk < size; n++) {
      const needed = Math.min(this.chunk, size - n * this.chunk);
      if (needed > (this.buffers[n]?.size ?? 0)) this.grow(n, needed);
    }
  }

  /** What was in the buffer stays. @param {number} n @param {number} needed */
  grow(n, needed) {
    const old = /** @type {GPUBuffer | undefined} */ (this.buffers[n]);
    const size = Math.min(Math.max(needed, Math.min(2 * (old?.size ?? 0), needed + STEP)), this.chunk);
    const usage = USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST;
    const rounded = Math.ceil(size / 256) * 256;
    const fresh = this.gpu.catchErrors(() => this.gpu.device.createBuffer({ size: rounded, usage, label: 'arena' }), this.pending);
    if (old) {
      this.commands().copyBufferToBuffer(old, 0, fresh, 0, old.size);
      this.flush();
      old.destroy();
    }
    this.buffers[n] = fresh;
    this.generation++;
  }

  /** @param {number} address @param {number} size @returns {{ buffer: GPUBuffer, offset: number, size: number }} for a binding or a copy */
  locate(address, size) {
    const n = Math.floor((address - GPU) / this.chunk);
    const offset = address - GPU - n * this.chunk;
    return { buffer: this.buffers[n], offset, size: Math.ceil(size / 4) * 4 };
  }

  /** The same for a tensor, wherever it lies. @param {number} number @param {number} address @param {number} size */
  find(number, address, size) {
    const own = this.ownBuffers.get(number);
    return own ? { buffer: own.buffer, offset: 0, size: Math.ceil(size / 4) * 4 } : this.locate(address, size);
  }

  /**
   * For a binding. Of a tensor's buffer that is ours the whole, which others of its size have, too.
   * @param {OwnBuffer | null | undefined} own @param {number} address @param {number} size
   */
  bound(own, address, size) {
    if (!own) return this.locate(address, size);
    const whole = this.gpu.tensors.live.has(own.buffer) ? Math.min(own.buffer.size, this.chunk) : Math.ceil(own.size / 4) * 4;
    return { buffer: own.buffer, offset: 0, size: whole };
  }

  // ── commands ──

  /** @returns {GPUCommandEncoder} of the next submission */
  commands() {
    this.encoder ??= this.gpu.device.createCommandEncoder();
    return this.encoder;
  }

  flush() {
    if (!this.encoder) return;
    const { encoder } = this;
    this.encoder = null;
    this.gpu.submit(encoder, this.pending);
  }

  // ── data ──

  /** Elements as linear memory holds them. @param {number} address @param {Uint8Array} bytes @param {string} dtype */
  write(address, bytes, dtype) {
    if (!bytes.length) return;
    const data = padToWords(toGpuStorage(bytes, dtype));
    const { buffer, offset } = this.locate(address, data.length);
    this.flush();
    this.gpu.device.queue.writeBuffer(buffer, offset, /** @type {Uint8Array<ArrayBuffer>} */ (data));
  }

  /** @param {number} address @param {GPUBuffer} source @param {number} size */
  copyIn(address, source, size) {
    if (!size) return;
    const { buffer, offset, size: bytes } = this.locate(address, size);
    this.commands().copyBufferToBuffer(source, 0, buffer, offset, bytes);
  }

  /** @param {{ buffer: GPUBuffer, offset: number, size: number }} from @param {GPUBuffer} target @param {number} [at] */
  copyOut({ buffer, offset, size }, target, at = 0) {
    this.commands().copyBufferToBuffer(buffer, offset, target, at, size);
  }

  /** Bytes on the GPU. */
  get size() {
    return this.buffers.reduce((sum, { size }) => sum + size, 0);
  }

  release() {
    this.encoder = null;
    this.ownBuffers.clear();
    for (const buffer of this.buffers.splice(0)) buffer.destroy();
    this.faultRecord?.destroy();
    this.faultRecord = null;
    this.generation++;
  }
}

/** Copies are of words. @param {Uint8Array} bytes @returns {Uint8Array} */
export function padToWords(bytes) {
  if (bytes.length % 4 === 0) return bytes;
  const padded = new Uint8Array(Math.ceil(bytes.length / 4) * 4);
  padded.set(bytes);
  return padded;
}
