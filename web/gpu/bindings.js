// What dispatches bind: the parameter blocks of a session, in one buffer at dynamic offsets, and bind groups, which are
// kept, since from one token of a decoder to the next only the numbers in the blocks change
// (docs/design/gpu.md#bind-group-cache).

import { USAGE } from './flags.js';

/** @typedef {import('./memory.js').GpuMemory} GpuMemory */
/** @typedef {{ buffer: GPUBuffer, offset: number, size: number }} Range */

const SLOT = 256; // parameter blocks are aligned to this
const LEAST = 1 << 16; // bytes of the buffer of parameter blocks
const MOST = 1 << 23; // larger ones are not kept for the plans to come
const GROUPS = 1 << 14; // kept

export class Parameters {
  /** @param {GpuMemory} memory */
  constructor(memory) {
    this.memory = memory;
    /** @type {GPUBuffer | null} */
    this.buffer = null;
    /** Bytes in use. */
    this.top = 0;
    /** Counts the times that all were dropped: offsets from before are stale. */
    this.epoch = 0;
  }

  /** Their offsets. @param {number[][]} blocks words of each */
  put(blocks) {
    const size = blocks.reduce((sum, { length }) => sum + Math.ceil((4 * length) / SLOT) * SLOT, 0);
    const words = new Int32Array(size / 4);
    const offsets = new Uint32Array(blocks.length);
    let at = 0;
    blocks.forEach((block, n) => {
      offsets[n] = this.top + 4 * at;
      words.set(block, at);
      at += Math.ceil((4 * block.length) / SLOT) * (SLOT / 4);
    });
    const buffer = this.reserve(this.top + size);
    this.memory.gpu.device.queue.writeBuffer(buffer, this.top, words);
    this.top += size;
    return offsets;
  }

  /** The buffer, with so many bytes; blocks in it stay. @param {number} size @returns {GPUBuffer} */
  reserve(size) {
    const { buffer: old, memory } = this;
    if (old && old.size >= size) return old;
    const usage = USAGE.UNIFORM | USAGE.COPY_SRC | USAGE.COPY_DST;
    const enough = Math.max(size, LEAST, 2 * (old?.size ?? 0));
    const made = memory.gpu.catchErrors(() => memory.gpu.device.createBuffer({ size: enough, usage, label: 'parameters' }), memory.pending);
    if (old) {
      memory.commands().copyBufferToBuffer(old, 0, made, 0, old.size);
      memory.flush();
      old.destroy();
    }
    memory.generation++;
    this.buffer = made;
    return made;
  }

  /** Plans were dropped, and what uses blocks is submitted. */
  forget() {
    if (this.buffer && this.buffer.size > MOST) return this.release();
    this.top = 0;
    this.epoch++;
  }

  release() {
    this.buffer?.destroy();
    this.buffer = null;
    this.top = 0;
    this.epoch++;
    this.memory.generation++;
  }
}

/** Bind groups of a session's memory as it is, by what they bind. */
export class BindGroups {
  /** @param {GpuMemory} memory */
  constructor(memory) {
    this.memory = memory;
    this.generation = -1;
    /** @type {Map<string, GPUBindGroup>} */
    this.kept = new Map();
    /** Names of tensors' buffers. @type {WeakMap<GPUBuffer, number>} */
    this.names = new WeakMap();
    this.named = 0;
  }

  /** What a group is kept under. @param {string} kind layout and parameters @param {Range[]} ranges */
  key(kind, ranges) {
    return `${kind}|${ranges.map(({ buffer, offset, size }) => `${this.name(buffer)}+${offset}:${size}`).join()}`;
  }

  /** @param {GPUBuffer} buffer */
  name(buffer) {
    const known = this.names.get(buffer);
    if (known !== undefined) return known;
    this.names.set(buffer, ++this.named);
    return this.named;
  }

  /** @param {string} key @returns {GPUBindGroup | undefined} */
  get(key) {
    if (this.generation !== this.memory.generation || this.kept.size > GROUPS) this.kept.clear();
    this.generation = this.memory.generation;
    return this.kept.get(key);
  }
}
