// Stops a call in the worker (docs/design/sessions.md#stopping-in-browsers): by a message, which the worker sees when it
// yields to its event loop; by a word of a Program's memory, which kernels on several threads poll; by Python's interrupt
// buffer. The last two need memory that page and worker share.

import { Terminated } from './errors.js';
import * as address from './linear_memory.js';

/** The word STOP of a Program's memory, in Int32 units. */
export const STOP = address.STOP / 4;
/** Milliseconds between two checks for messages. */
export const TICK = 20;
const SIGINT = 2;

/** In the worker: whether to stop a call. */
export class Stop {
  /**
   * @param {number} id of the call
   * @param {Uint8Array | null} interrupt Python's interrupt buffer
   * @param {(memory: SharedArrayBuffer) => void} sendMemory to the page, which writes STOP there
   */
  constructor(id, interrupt, sendMemory) {
    this.id = id;
    this.interrupt = interrupt;
    this.sendMemory = sendMemory;
    this.controller = new AbortController();
    /** The memory of the Program that runs on several threads. @type {Int32Array | null} */
    this.words = null;
    this.checkedAt = performance.now();
  }

  get stopped() {
    return this.controller.signal.aborted || (this.words !== null && Atomics.load(this.words, STOP) < 0);
  }

  /** Throws if the call is stopped. */
  check() {
    if (this.stopped) throw new Terminated('it was stopped');
  }

  /** Between two steps: throws, or yields to the event loop after TICK. @returns {Promise<void> | null} null: continue at once */
  yieldIfDue() {
    this.check();
    return performance.now() - this.checkedAt < TICK ? null : this.yieldToEventLoop();
  }

  /** Lets pending messages be handled. */
  async yieldToEventLoop() {
    await eventLoop();
    this.checkedAt = performance.now();
    this.check();
  }

  /** Lets the page stop kernels that run on this memory. @param {Int32Array} words at its start */
  arm(words) {
    if (this.words?.buffer === words.buffer) return;
    this.disarm();
    this.words = words;
    Atomics.store(words, STOP, this.id);
    this.sendMemory(/** @type {SharedArrayBuffer} */ (words.buffer));
  }

  /** The run has ended. */
  disarm() {
    if (this.words) Atomics.store(this.words, STOP, 0);
    this.words = null;
  }
}

/** In the page: stops a call by words of shared memory, which reach the worker while it cannot read messages. */
export class StopWords {
  /** @param {number} id of the call @param {boolean} sharesMemory */
  constructor(id, sharesMemory) {
    this.id = id;
    /** @type {Uint8Array | null} */
    this.interrupt = sharesMemory ? new Uint8Array(new SharedArrayBuffer(1)) : null;
    /** @type {Int32Array | null} */
    this.words = null;
    this.stopped = false;
  }

  /** Takes the memory that the worker sent. @param {SharedArrayBuffer} memory */
  take(memory) {
    this.words = new Int32Array(memory, 0, STOP + 1);
    if (this.stopped) this.stop();
  }

  /** Stops this call only: STOP has its number, and no other call uses its interrupt buffer. */
  stop() {
    this.stopped = true;
    if (this.interrupt) Atomics.store(this.interrupt, 0, SIGINT);
    if (this.words) Atomics.compareExchange(this.words, STOP, this.id, -this.id);
  }
}

/** Resolves after pending messages. A timer would take 4 ms. @returns {Promise<void>} */
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
