// A session's memory on the GPU: one range of addresses over a few large buffers, and copies into and out of it.

import { USAGE } from './flags.js';
import { checkLimit, hold } from '../run/budgets.js';
import { GPU } from '../runtime/arena.js';
import { isWide, toGpuStorage } from './storage.js';

/** @import { Device } from './types.js' */
/** @typedef {{ n: number, old: GPUBuffer }} Growth the number of the buffer, and the one that is replaced */
/** @typedef {{ buffer: GPUBuffer, size: number }} OwnBuffer the GPUBuffer of one tensor, and the tensor's bytes */

/** The fault record: number of a node whose indices are checked, extent, index (int32), and a word that web/gpu/moves.js writes. */
export const FAULT_BYTES = 16;

let last = 0; // the number of the last memory of a session

const STEP = 256 << 20; // bytes that a buffer grows by beyond the need, at most

export class GpuMemory {
  /** @param {Device} gpu */
  constructor(gpu) {
    this.gpu = gpu;
    const { buffer_bytes, binding_bytes } = gpu.adapter;
    /** Bytes of a buffer. No tensor spans two. */
    this.chunk = Math.floor(Math.min(buffer_bytes, binding_bytes, 2 ** 31) / 256) * 256;
    /** @type {GPUBuffer[]} */
    this.buffers = [];
    /** Tensors of this run that have their own GPUBuffer and no address in this memory, by their number. @type {Map<number, OwnBuffer>} */
    this.ownBuffers = new Map();
    /** Changes when a buffer is replaced: earlier bind groups are then invalid. */
    this.generation = 0;
    /** Of buffers, oldest first, as long as it is not known whether there was room. @type {Growth[]} */
    this.growths = [];
    /** Has the commands that are not submitted yet. @type {GPUCommandEncoder | null} */
    this.encoder = null;
    /** The number of the next submission. */
    this.submission = 0;
    /** Uploaded before each submission. @type {{ upload(): void } | null} */
    this.parameters = null;
    /** Results of error scopes. @type {import('./types.js').Caught[]} */
    this.pending = [];
    /** Number of runs that have failed: later errors of their commands are dropped. */
    this.attempt = 0;
    this.register();
    /** @type {GPUBuffer | null} */
    this.faultRecord = null;
  }

  /** In the labels of its commands and buffers, which errors name that are reported outside of error scopes. */
  number = 0;

  /** Takes the next number. */
  register() {
    this.number = ++last;
    this.gpu.memories.set(this.number, this);
  }

  /** The buffer of the fault record. */
  get faults() {
    const usage = USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST;
    const create = () => this.gpu.device.createBuffer({ size: FAULT_BYTES, usage, label: this.label('faults') });
    this.faultRecord ??= this.gpu.catchErrors(create, this.pending);
    return this.faultRecord;
  }

  /** Waits for the errors of earlier commands and throws them. */
  throwErrors() {
    return this.gpu.throwErrors(this.pending);
  }

  get hasPendingErrors() {
    return this.pending.length + this.gpu.pending.length > 0;
  }

  /** Allocates memory up to this address. @param {number} end */
  ensure(end) {
    const size = end - GPU;
    for (let n = 0; n * this.chunk < size; n++) {
      const needed = Math.min(this.chunk, size - n * this.chunk);
      if (needed > (this.buffers[n]?.size ?? 0)) this.grow(n, needed);
    }
  }

  /** Grows a buffer and keeps its contents, also if there is no room for the larger one. @param {number} n @param {number} needed bytes */
  grow(n, needed) {
    const old = /** @type {GPUBuffer | undefined} */ (this.buffers[n]);
    const size = Math.min(Math.max(needed, Math.min(2 * (old?.size ?? 0), needed + STEP)), this.chunk);
    const usage = USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST;
    const rounded = Math.ceil(size / 256) * 256;
    const more = rounded - (old?.size ?? 0);
    checkLimit('gpu', more);
    const create = () => this.gpu.device.createBuffer({ size: rounded, usage, label: this.label('arena') });
    const larger = this.gpu.catchErrors(create, this.pending);
    this.buffers[n] = larger;
    hold('gpu', more);
    this.generation++;
    if (!old) return;
    const growth = { n, old };
    this.growths.push(growth);
    const caught = this.pending.splice(-2).map((one) => one.then((error) => (error && this.restore(growth), error)));
    this.pending.push(...caught);
    Promise.all(caught).then(() => this.discard(growth));
    this.commands().copyBufferToBuffer(old, 0, larger, 0, old.size);
    this.flush();
  }

  /** There is no room for the larger buffer: the buffer before it is in its place again. @param {Growth} growth */
  restore(growth) {
    const { n, old } = growth;
    const at = this.growths.indexOf(growth);
    if (at < 0) return;
    const undone = this.growths.splice(at).filter((one) => one.n === n);
    for (const buffer of [this.buffers[n], ...undone.slice(1).map((one) => one.old)]) buffer.destroy();
    hold('gpu', old.size - this.buffers[n].size);
    this.buffers[n] = old;
    this.generation++;
    this.gpu.memories.delete(this.number); // whose errors follow from this one
    this.register();
  }

  /** The larger buffer has the contents. @param {Growth} growth */
  discard(growth) {
    const at = this.growths.indexOf(growth);
    if (at >= 0) this.growths.splice(at, 1)[0].old.destroy();
  }

  /**
   * For a binding or a copy.
   * @param {number} address @param {number} size @returns {{ buffer: GPUBuffer, offset: number, size: number }}
   */
  locate(address, size) {
    const n = Math.floor((address - GPU) / this.chunk);
    const offset = address - GPU - n * this.chunk;
    return { buffer: this.buffers[n], offset, size: Math.ceil(size / 4) * 4 };
  }

  /** The same for a tensor, which may have its own buffer. @param {number} number @param {number} address @param {number} size */
  find(number, address, size) {
    const own = this.ownBuffers.get(number);
    return own ? { buffer: own.buffer, offset: 0, size: Math.ceil(size / 4) * 4 } : this.locate(address, size);
  }

  /**
   * For a binding. A buffer that the engine created is bound whole: buffers of its size class then share bind group keys.
   * @param {OwnBuffer | null | undefined} own @param {number} address @param {number} size
   */
  bound(own, address, size) {
    if (!own) return this.locate(address, size);
    const whole = this.gpu.tensors.live.has(own.buffer) ? Math.min(own.buffer.size, this.chunk) : Math.ceil(own.size / 4) * 4;
    return { buffer: own.buffer, offset: 0, size: whole };
  }

  /** @param {string} what @returns {string} */
  label(what) {
    return `${what} of pyruntime session ${this.number}`;
  }

  // ── commands ──

  /** @returns {GPUCommandEncoder} of the next submission */
  commands() {
    this.encoder ??= this.gpu.device.createCommandEncoder({ label: `pyruntime session ${this.number} attempt ${this.attempt}` });
    return this.encoder;
  }

  /** The run has failed: drops its commands, and what the GPU reports of those that were submitted. */
  abandon() {
    this.encoder = null;
    this.attempt++;
    const kept = this.pending.filter(({ isOfCommands }) => !isOfCommands);
    this.pending.splice(0, Infinity, ...kept);
  }

  flush() {
    if (!this.encoder) return;
    const { encoder } = this;
    this.encoder = null;
    this.submission++;
    this.parameters?.upload();
    this.gpu.submit(encoder, this.pending);
  }

  // ── data ──

  /** Writes elements in the layout of linear memory. @param {number} address @param {Uint8Array} bytes @param {string} dtype */
  write(address, bytes, dtype) {
    if (!bytes.length) return;
    const data = padToWords(toGpuStorage(bytes, dtype));
    const { buffer, offset } = this.locate(address, data.length);
    this.flush();
    this.gpu.device.queue.writeBuffer(buffer, offset, /** @type {Uint8Array<ArrayBuffer>} */ (data));
  }

  /**
   * Writes some byte ranges of a tensor. If the gaps between them are small, one call writes all, because a call takes about 1 us; but
   * not 64-bit integers, which the GPU has in 32 bits: what lies in the gaps may not fit.
   * address: of the tensor on the GPU; bytes: the whole tensor; ranges: of those to write.
   * @param {number} address @param {Uint8Array} bytes @param {string} dtype @param {import('../runtime/growth.js').ByteRanges} ranges
   */
  writeRanges(address, bytes, dtype, { count, length, stride }) {
    const few = stride - length < Math.max(length / 4, 256);
    const width = isWide(dtype) ? 2 : 1;
    if (length && width === 1 && (few || length % 4 || stride % 4)) return this.write(address, bytes, dtype);
    for (let at = 0; at < count * stride; at += stride) this.write(address + at / width, bytes.subarray(at, at + length), dtype);
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

  /** Returns the bytes on the GPU. */
  get size() {
    return this.buffers.reduce((sum, { size }) => sum + size, 0);
  }

  release() {
    this.gpu.memories.delete(this.number);
    this.encoder = null;
    this.ownBuffers.clear();
    hold('gpu', -this.size);
    const replaced = this.growths.splice(0).map(({ old }) => old);
    for (const buffer of [...this.buffers.splice(0), ...replaced]) buffer.destroy();
    this.faultRecord?.destroy();
    this.faultRecord = null;
    this.generation++;
  }
}

/** Pads bytes for copies, which are of words of 4 bytes. @param {Uint8Array} bytes @returns {Uint8Array} */
export function padToWords(bytes) {
  if (bytes.length % 4 === 0) return bytes;
  const padded = new Uint8Array(Math.ceil(bytes.length / 4) * 4);
  padded.set(bytes);
  return padded;
}
