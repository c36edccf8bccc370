// What dispatches bind: parameter blocks at dynamic offsets of one buffer, and cached bind groups. From one token of a
// decoder to the next only the numbers in the blocks change (docs/design/gpu.md#bind-group-cache).
// Twin of providers/webgpu/wgpu_bindings.py.

import { USAGE } from './flags.js';

/** @import { Call } from '../common/program.js' */
/** @import { GpuMemory, OwnBuffer } from './memory.js' */
/** @import { Range } from './types.js' */

const SLOT = 256; // alignment of parameter blocks in bytes
const LEAST = 1 << 16; // bytes of the buffer of parameter blocks
const MOST = 1 << 23; // a larger buffer is freed when plans are dropped
const GROUPS = 1 << 14; // cached

/** Blocks are written into a copy on the CPU. A submission first uploads what has changed, in one write. */
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
    this.words = new Int32Array(0);
    /** The words that the next submission uploads: the first, and the one behind the last. */
    this.changed = [0, 0];
  }

  /** The offset of more bytes. @param {number} size */
  reserve(size) {
    const offset = this.top;
    this.top += size;
    if (!this.buffer || this.buffer.size < this.top) this.grow(Math.max(this.top, LEAST, 8 * this.words.length));
    return offset;
  }

  /** Commands that are not submitted yet must not use these words. @param {number} offset @param {Int32Array} words */
  write(offset, words) {
    const at = offset / 4;
    this.words.set(words, at);
    const [first, end] = this.changed;
    this.changed = end ? [Math.min(first, at), Math.max(end, at + words.length)] : [at, at + words.length];
  }

  /** Before a submission. */
  upload() {
    const [first, end] = this.changed;
    if (!end || !this.buffer) return;
    this.changed = [0, 0];
    this.memory.gpu.device.queue.writeBuffer(this.buffer, 4 * first, this.words, first, end - first);
  }

  /** @param {number} size */
  grow(size) {
    const { memory } = this;
    memory.flush();
    const create = () => memory.gpu.device.createBuffer({ size, usage: USAGE.UNIFORM | USAGE.COPY_DST, label: memory.label('parameters') });
    const buffer = memory.gpu.catchErrors(create, memory.pending);
    this.buffer?.destroy();
    this.changed = [0, this.words.length];
    const words = new Int32Array(size / 4);
    words.set(this.words);
    this.words = words;
    this.buffer = buffer;
    memory.generation++;
  }

  /** The planner has dropped its plans, and all work that uses blocks is submitted. */
  forget() {
    if (this.buffer && this.buffer.size > MOST) return this.release();
    this.top = 0;
    this.changed = [0, 0];
    this.epoch++;
  }

  release() {
    this.buffer?.destroy();
    this.buffer = null;
    this.words = new Int32Array(0);
    this.top = 0;
    this.changed = [0, 0];
    this.epoch++;
    this.memory.generation++;
  }
}

/** A step that has parameter blocks (prepared.js). @typedef {{ size: number, blocks(): Int32Array }} Prepared */
/** Parameter blocks of one step. size: in bytes; step: whose blocks it has; submission: the last one that uses them. @typedef {{ offset: number, size: number, step: Prepared | null, submission: number }} Region */

/** Bytes of a call's parameter block. @param {Call['params']} params */
export const blockSize = (params) => Math.ceil((4 * (params.length + 1)) / SLOT) * SLOT;

/**
 * What the dispatches of a step bind in one layout: for each call the addresses of its buffers and its bind group, and regions for
 * parameter blocks. Steps of many shapes share a layout, and only rewrite their blocks.
 */
export class LayoutBindings {
  /** @param {Call[]} calls @param {number[][]} sizes bytes of each call's buffers @param {ArrayLike<number>} words argument blocks */
  constructor(calls, sizes, words) {
    this.calls = calls;
    this.sizes = sizes;
    /** @type {number[][]} */
    this.addresses = [];
    /** Offset of each call's block in a region. @type {number[]} */
    this.starts = [];
    /** Bytes of these blocks. */
    this.size = 0;
    let at = 0;
    for (const { buffers, params } of calls) {
      this.addresses.push(Array.from({ length: buffers.length }, (_, n) => words[at + n]));
      at += buffers.length + params.length + 1;
      this.starts.push(this.size);
      this.size += blockSize(params);
    }
    /** @type {(GPUBindGroup | null)[]} */
    this.groups = calls.map(() => null);
    /** The tensors outside the session's memory that each group binds. @type {((OwnBuffer | undefined)[] | null)[]} */
    this.own = calls.map(() => null);
    this.generation = -1;
    this.epoch = -1;
    /** @type {Region[]} */
    this.regions = [];
  }

  /**
   * The region with the blocks of a step.
   * @param {Prepared} step @param {Parameters} parameters @param {number} submission the next one, whose commands may use other regions
   */
  region(step, parameters, submission) {
    if (this.epoch !== parameters.epoch) {
      this.regions = [];
      this.epoch = parameters.epoch;
    }
    let region = this.regions.find((each) => each.step === step);
    if (!region) {
      region = this.regions.find((each) => each.submission !== submission && each.size >= step.size);
      if (!region) {
        region = { offset: parameters.reserve(step.size), size: step.size, step, submission };
        this.regions.push(region);
      }
      region.step = step;
      parameters.write(region.offset, step.blocks());
    }
    region.submission = submission;
    return region;
  }

  /** Drops the groups that bind buffers of tensors, because plans outlive tensors. */
  release() {
    this.own.forEach((own, n) => {
      if (own) this.groups[n] = this.own[n] = null;
    });
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
