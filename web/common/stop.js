// How the worker is told that a call is wanted no more (docs/design/sessions.md#stopping-in-browsers): by a message,
// which it sees when it comes to its
// event loop; by a word of a Program's memory, which kernels on several threads look at; by Python's interrupt buffer.
// The latter two take memory that page and worker share.

import { Terminated } from './errors.js';
import * as address from './linear_memory.js';
import { hasSharedMemory } from './shared_memory.js';

/** The word STOP of a Program's memory, in Int32 units. */
export const STOP = address.STOP / 4;
/** Milliseconds between two looks at whether to stop. */
export const TICK = 20;
const SIGINT = 2;

/** In the worker: whether one call is to be stopped. */
export class Stop {
  /**
   * @param {number} id of the call
   * @param {Uint8Array | null} interrupt what Python looks at
   * @param {(memory: SharedArrayBuffer) => void} lend tells the page in which memory it finds STOP
   */
  constructor(id, interrupt, lend) {
    this.id = id;
    this.interrupt = interrupt;
    this.lend = lend;
    this.controller = new AbortController();
    /** Of the Program that runs on several threads. @type {Int32Array | null} */
    this.words = null;
    this.looked = performance.now();
  }

  get stopped() {
    return this.controller.signal.aborted || (this.words !== null && Atomics.load(this.words, STOP) < 0);
  }

  /** Throws if it is. */
  check() {
    if (this.stopped) throw new Terminated('it was stopped');
  }

  /** Between two steps: throws, or goes to the event loop if it is time. @returns {Promise<void> | null} null: go on at once */
  turn() {
    this.check();
    return performance.now() - this.looked < TICK ? null : this.look();
  }

  /** Sees what messages have come. */
  async look() {
    await eventLoop();
    this.looked = performance.now();
    this.check();
  }

  /** From now on kernels of this memory can be stopped. @param {Int32Array} words that it begins with */
  arm(words) {
    if (this.words?.buffer === words.buffer) return;
    this.disarm();
    this.words = words;
    Atomics.store(words, STOP, this.id);
    this.lend(/** @type {SharedArrayBuffer} */ (words.buffer));
  }

  /** The run is over. */
  disarm() {
    if (this.words) Atomics.store(this.words, STOP, 0);
    this.words = null;
  }
}

/** In the page: what it stops a call with, besides the message. */
export class StopWords {
  /** @param {number} id of the call */
  constructor(id) {
    this.id = id;
    /** @type {Uint8Array | null} */
    this.interrupt = hasSharedMemory() ? new Uint8Array(new SharedArrayBuffer(1)) : null;
    /** @type {Int32Array | null} */
    this.words = null;
    this.stopped = false;
  }

  /** What the worker lent. @param {SharedArrayBuffer} memory */
  take(memory) {
    this.words = new Int32Array(memory, 0, STOP + 1);
    if (this.stopped) this.stop();
  }

  /** Nothing is stopped but this call: the word has its number, and nobody else looks at the interrupt buffer. */
  stop() {
    this.stopped = true;
    if (this.interrupt) Atomics.store(this.interrupt, 0, SIGINT);
    if (this.words) Atomics.compareExchange(this.words, STOP, this.id, -this.id);
  }
}

/** After the messages that have come by now. A timer would take 4 ms. @returns {Promise<void>} */
function eventLoop() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}
