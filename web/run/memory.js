// Linear memory.

import { ArgumentBlocks } from './argument_blocks.js';
import { OutOfMemory } from '../common/errors.js';
import { reportGarbage } from '../common/garbage.js';
import { RESERVED } from '../common/linear_memory.js';
import { checkSize, MARGIN } from '../runtime/arena.js';
import { budgets, checkLimit, hold } from './budgets.js';

const PAGE = 65536;
const LEAST = 64; // pages: where a browser refuses even this maximum size, the session fails

const SPARES = 4; // memories of released sessions that are kept for later sessions
const SPARE_BYTES = 4 * 2 ** 20; // larger memories are not kept

/** @import { Span } from '../runtime/arena.js' */

/**
 * Small memories for reuse. Each memory reserves 8 GiB or more of the terabyte of addresses that a page has, and browsers
 * collect unused ones late: a sleeping thread collects no garbage.
 * @type {Memory[]}
 */
const spare = [];

/** Discards the spare memories. Returns whether there were any. */
export const freeSpare = () => spare.splice(0).length > 0;

/** Makes room within the page's limit. Discards the spare memories if they do not fit beside what sessions hold. @param {number} more bytes */
function makeRoom(more) {
  checkLimit('linear', more);
  if (!budgets.linear.fits(more + spare.reduce((sum, { bytes }) => sum + bytes.length, 0))) freeSpare();
}

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
    /** Bytes that this memory has last reported to the page's budget. */
    this.counted = 0;
    /** Whether others may still write to it. */
    this.isLeft = false;
  }

  /** Tells the page's budget what this memory holds. @param {number} [size] bytes */
  count(size = this.bytes.length + this.apart) {
    hold('linear', size - this.counted);
    this.counted = size;
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
      this.count();
    }
  }

  /** A new memory, or a spare one. @param {boolean} shared @param {number} [limit] bytes */
  static take(shared, limit = Infinity) {
    const { buffer } = spare.at(-1)?.bytes ?? {};
    const suits = buffer && shared === !(buffer instanceof ArrayBuffer) && buffer.byteLength <= limit;
    const memory = (suits && budgets.linear.fits(buffer.byteLength) && spare.pop()) || Memory.create(shared);
    memory.limit = limit;
    memory.count();
    return memory;
  }

  /** @param {boolean} shared */
  static create(shared) {
    makeRoom(PAGE);
    return new Memory(shared);
  }

  /** Ends its use by a session; keeps it as a spare if it is small. */
  giveBack() {
    this.count(0);
    for (const { buffer } of this.others) reportGarbage(buffer);
    if (this.isLeft || this.apart || spare.length === SPARES || this.bytes.length > SPARE_BYTES) return reportGarbage(this.bytes.buffer);
    this.bytes.fill(0, RESERVED);
    spare.push(this);
  }

  /** Makes all bytes below `end` usable. @param {number} end */
  ensure(end) {
    const size = end + MARGIN;
    if (size <= this.bytes.length) return;
    this.check(size);
    granted(size, () => this.memory.grow(Math.ceil((size - this.bytes.length) / PAGE)));
    this.bytes = new Uint8Array(this.memory.buffer);
    this.count();
  }

  /** Throws OutOfMemory if this size, with the further memories, exceeds a limit. @param {number} size */
  check(size) {
    const { apart, limit } = this;
    checkSize(size, apart, limit, 'memoryLimit');
    makeRoom(size + apart - this.counted);
  }

  /** The argument blocks of a step. @param {import('../common/program.js').Call[]} calls */
  blocks(calls) {
    return new ArgumentBlocks(calls);
  }

  /** Writes words as int32. @param {number} address @param {Float64Array} words */
  writeWords(address, words) {
    new Int32Array(this.memory.buffer, address, words.length).set(words);
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
    throw Object.assign(new OutOfMemory(`the browser cannot provide ${size} bytes of memory`, { cause }), { ofAll: true });
  }
}

/** Reserves addresses; a smaller range where a browser refuses 4 GiB. @param {boolean} shared */
function reserve(shared) {
  for (let maximum = 65536; ; maximum /= 2) {
    try {
      return new WebAssembly.Memory({ initial: 1, maximum, shared });
    } catch (cause) {
      if (maximum <= LEAST) throw Object.assign(new OutOfMemory('the browser cannot provide memory for WebAssembly', { hint: 'release sessions or close other tabs', cause }), { ofAll: true });
    }
  }
}
