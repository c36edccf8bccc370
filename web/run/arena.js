// Linear memory, and the allocator of linear and GPU memory.

import { MemoryFault, OutOfMemory } from '../common/errors.js';
import { reportGarbage } from '../common/garbage.js';
import { RESERVED } from '../common/linear_memory.js';

const PAGE = 65536;
const MOST = 2 ** 32 - PAGE; // bytes of a linear memory, at most
const LEAST = 1024; // pages: where a browser refuses even this maximum size, the session fails
const ALIGN = 64;
const GPU_ALIGN = 256; // of bind group offsets

/** Addresses from here on are bytes of the GPU's memory. */
export const GPU = 2 ** 40;

const SPARES = 4; // memories of released sessions that are kept for later sessions
const SPARE_BYTES = 4 * 2 ** 20; // larger memories are not kept

/** @typedef {{ address: number, size: number, memory?: number }} Span size: rounded by the arena; memory: number of the further memory that it is in */

/**
 * Small memories for reuse. Each memory reserves 8 GiB or more of the terabyte of addresses that a page has, and browsers
 * collect unused ones late: a sleeping thread collects no garbage.
 * @type {Memory[]}
 */
const spare = [];

/** Discards the spare memories. Returns whether there were any. */
export const freeSpare = () => spare.splice(0).length > 0;

/** The memory of a session. `bytes` is a new view after each growth. */
export class Memory {
  /** @param {boolean} shared */
  constructor(shared) {
    /** Largest size in bytes. */
    this.limit = Infinity;
    this.memory = reserve(shared);
    this.bytes = new Uint8Array(this.memory.buffer);
    /** Further linear memories. @type {WebAssembly.Memory[]} */
    this.others = [];
    /** Bytes of the further memories. */
    this.apart = 0;
  }

  /** The imports of a module. @returns {Record<string, WebAssembly.Memory>} */
  get imports() {
    return Object.fromEntries([this.memory, ...this.others].map((memory, n) => [`memory${n || ''}`, memory]));
  }

  /**
   * Adds memories of these sizes, for weights that do not fit the first (docs/design/memory.md#weights-over-4-gib).
   * @param {number[]} sizes @param {boolean} shared
   */
  add(sizes, shared) {
    for (const size of sizes) {
      const pages = Math.ceil(size / PAGE);
      this.check(size);
      this.others.push(granted(size, () => new WebAssembly.Memory({ initial: pages, maximum: pages, shared })));
      this.apart += pages * PAGE;
    }
  }

  /** A new memory, or a spare one. @param {boolean} shared @param {number} [limit] bytes */
  static take(shared, limit = Infinity) {
    const { buffer } = spare.at(-1)?.bytes ?? {};
    const fits = buffer && shared === !(buffer instanceof ArrayBuffer) && buffer.byteLength <= limit;
    const memory = (fits && spare.pop()) || new Memory(shared);
    memory.limit = limit;
    return memory;
  }

  /** Ends its use by a session; keeps it as a spare if it is small. */
  giveBack() {
    for (const { buffer } of this.others) reportGarbage(buffer);
    if (this.apart || spare.length === SPARES || this.bytes.length > SPARE_BYTES) return reportGarbage(this.bytes.buffer);
    this.bytes.fill(0, RESERVED);
    spare.push(this);
  }

  /** Makes the first `size` bytes usable. @param {number} size */
  ensure(size) {
    if (size <= this.bytes.length) return;
    this.check(size);
    granted(size, () => this.memory.grow(Math.ceil((size - this.bytes.length) / PAGE)));
    this.bytes = new Uint8Array(this.memory.buffer);
  }

  /** Throws OutOfMemory if this size, with the further memories, exceeds the limit. @param {number} size */
  check(size) {
    const { apart, limit } = this;
    if (size <= Math.min(limit - apart, MOST)) return;
    const reason = limit - apart < MOST ? `memoryLimit is ${limit}` : `WebAssembly has ${MOST + apart}`;
    throw new OutOfMemory(`${size + apart} bytes of memory are needed, ${reason}`, { hint: 'raise memoryLimit or use smaller inputs' });
  }

  /** @param {Span} span @param {number} size @returns {Uint8Array} */
  view({ address, memory }, size) {
    return (memory ? new Uint8Array(this.others[memory - 1].buffer) : this.bytes).subarray(address, address + size);
  }
}

/** @template T @param {number} size bytes @param {() => T} take @returns {T} */
function granted(size, take) {
  try {
    return take();
  } catch (cause) {
    throw new OutOfMemory(`the browser cannot provide ${size} bytes of memory`, { cause });
  }
}

/** Reserves addresses; a smaller range where a browser refuses 4 GiB. @param {boolean} shared */
function reserve(shared) {
  for (let maximum = 65536; ; maximum /= 2) {
    try {
      return new WebAssembly.Memory({ initial: 1, maximum, shared });
    } catch (cause) {
      if (maximum <= LEAST) throw new OutOfMemory('the browser cannot provide memory for WebAssembly', { hint: 'release sessions or close other tabs', cause });
    }
  }
}

/** A best-fit allocator with merging of free neighbours. It is cheap to copy, so that plans can start from any point of a run. */
export class Arena {
  /**
   * @param {Span[]} free sorted by address @param {number} end all memory from here on is free
   * @param {number} chunk size of the GPU's buffers, whose borders no span may cross; 0 for linear memory
   */
  constructor(free = [], end = RESERVED, chunk = 0) {
    this.free = free;
    this.end = end;
    this.chunk = chunk;
    this.base = chunk ? GPU : RESERVED;
  }

  copy() {
    return new Arena(this.free.map((span) => ({ ...span })), this.end, this.chunk);
  }

  /** Bytes up to the end. */
  get reach() {
    return this.end - this.base;
  }

  /** @param {number} size bytes asked for */
  round(size) {
    if (!this.chunk) return Math.ceil(Math.max(size, 1) / ALIGN) * ALIGN;
    if (size > this.chunk) throw new OutOfMemory(`a tensor needs ${size} bytes, the largest buffer of the GPU has ${this.chunk}`);
    return Math.ceil(Math.max(size, 1) / GPU_ALIGN) * GPU_ALIGN;
  }

  /** @param {number} size @returns {Span} */
  alloc(size) {
    const wanted = this.round(size);
    let best = -1;
    for (let i = 0; i < this.free.length; i++) {
      if (this.free[i].size >= wanted && (best < 0 || this.free[i].size < this.free[best].size)) best = i;
    }
    if (best < 0) return this.extend(wanted);
    const { address, size: found } = this.free[best];
    if (found === wanted) this.free.splice(best, 1);
    else this.free[best] = { address: address + wanted, size: found - wanted };
    return { address, size: wanted };
  }

  /** Allocates at the end, including free memory right before it. @param {number} wanted @returns {Span} */
  extend(wanted) {
    const last = this.free[this.free.length - 1];
    const joins = last && last.address + last.size === this.end && !this.border(this.end);
    const start = joins ? last.address : this.end;
    const left = this.chunk ? this.chunk - ((start - GPU) % this.chunk) : Infinity;
    if (wanted > left) {
      const gap = { address: this.end, size: start + left - this.end };
      this.end = start + left;
      if (gap.size) this.release(gap);
      return this.extend(wanted);
    }
    if (joins) this.free.pop();
    this.end = start + wanted;
    return { address: start, size: wanted };
  }

  /** The first address from `at` on at which `size` bytes fit into one buffer. @param {number} at @param {number} size */
  clear(at, size) {
    const left = this.chunk ? this.chunk - ((at - GPU) % this.chunk) : Infinity;
    return size > left ? at + left : at;
  }

  /** Computes the free list from the spans in use, up to `top`. @param {{ address: number, end: number }[]} taken @param {number} top */
  rebuild(taken, top) {
    this.free = [];
    this.end = Math.max(this.end, top);
    let at = this.base;
    for (const { address, end } of [...taken, { address: this.end, end: this.end }].sort((a, b) => a.address - b.address)) {
      while (at < address) {
        const stop = this.chunk ? Math.min(address, at + this.chunk - ((at - GPU) % this.chunk)) : address;
        this.free.push({ address: at, size: stop - at });
        at = stop;
      }
      at = Math.max(at, end);
    }
  }

  /** Whether a buffer starts at this address. @param {number} address */
  border(address) {
    return this.chunk > 0 && (address - GPU) % this.chunk === 0;
  }

  /** @param {Span} span */
  release({ address, size }) {
    let at = this.free.findIndex((span) => span.address > address);
    if (at < 0) at = this.free.length;
    const before = this.free[at - 1];
    const after = this.free[at];
    if ((before && before.address + before.size > address) || (after && address + size > after.address)) {
      throw new MemoryFault(`memory at ${address} is released, but not in use`);
    }
    const merged = { address, size };
    let drop = 0;
    if (after && address + size === after.address && !this.border(after.address)) {
      merged.size += after.size;
      drop = 1;
    }
    if (before && before.address + before.size === address && !this.border(address)) {
      merged.address = before.address;
      merged.size += before.size;
      this.free.splice(at - 1, drop + 1, merged);
    } else this.free.splice(at, drop, merged);
  }
}
