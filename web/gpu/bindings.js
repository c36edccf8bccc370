// Parameter blocks at dynamic offsets of one buffer, and cached bind groups: from one token of a decoder to the next
// only the numbers in the blocks change (docs/design/gpu.md#bind-group-cache). Mirrors providers/webgpu/wgpu_bindings.py.

import { USAGE } from './flags.js';

/** @import { GpuMemory } from './memory.js' */
/** @import { Range } from './types.js' */

const SLOT = 256; // alignment of parameter blocks in bytes
const LEAST = 1 << 16; // bytes of the buffer of parameter blocks
const MOST = 1 << 23; // a larger buffer is freed when plans are dropped
const GROUPS = 1 << 14; // cached

export class Parameters {
  /** @param {GpuMemory} memory */
  constructor(memory) {
    this.memory = memory;
    /** @type {GPUBuffer | null} */
    this.buffer = null;
    /** Bytes in use. */
    this.top = 0;
    /** Changes when all blocks are dropped: earlier offsets are then invalid. */
    this.epoch = 0;
  }

  /** Writes blocks. Returns their offsets. @param {number[][]} blocks words of each */
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

  /** The buffer, grown to at least `size` bytes; keeps the blocks. @param {number} size @returns {GPUBuffer} */
  reserve(size) {
    const { buffer: old, memory } = this;
    if (old && old.size >= size) return old;
    const usage = USAGE.UNIFORM | USAGE.COPY_SRC | USAGE.COPY_DST;
    const enough = Math.max(size, LEAST, 2 * (old?.size ?? 0));
    const { device } = memory.gpu;
    const create = () => device.createBuffer({ size: enough, usage, label: 'parameters' });
    const buffer = memory.gpu.catchErrors(create, memory.pending);
    if (old) {
      memory.commands().copyBufferToBuffer(old, 0, buffer, 0, old.size);
      memory.flush();
      old.destroy();
    }
    memory.generation++;
    this.buffer = buffer;
    return buffer;
  }

  /** The planner has dropped its plans, and all work that uses blocks is submitted. */
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

/** A cache of a session's bind groups, for one generation of its memory. */
export class BindGroups {
  /** @param {GpuMemory} memory */
  constructor(memory) {
    this.memory = memory;
    this.generation = -1;
    /** @type {Map<string, GPUBindGroup>} */
    this.cache = new Map();
    /** A number for each buffer, for cache keys. @type {WeakMap<GPUBuffer, number>} */
    this.numbers = new WeakMap();
    this.count = 0;
  }

  /** The cache key of a bind group. @param {string} kind layout @param {Range[]} ranges */
  key(kind, ranges) {
    return `${kind}|${ranges.map(({ buffer, offset, size }) => `${this.numberOf(buffer)}+${offset}:${size}`).join()}`;
  }

  /** @param {GPUBuffer} buffer */
  numberOf(buffer) {
    const known = this.numbers.get(buffer);
    if (known !== undefined) return known;
    this.numbers.set(buffer, ++this.count);
    return this.count;
  }

  /** @param {string} key @returns {GPUBindGroup | undefined} */
  get(key) {
    if (this.generation !== this.memory.generation || this.cache.size > GROUPS) this.cache.clear();
    this.generation = this.memory.generation;
    return this.cache.get(key);
  }
}
