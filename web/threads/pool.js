// The engine's threads: they start when a session first needs them, serve all sessions, and sleep between runs.

import {
  ARRIVED, AWAKE, COMMAND, CONTROL_BYTES, EPOCH, LINE, LISTEN, MAILBOXES, MAX_THREADS, POISON, REASON, RUN, SEQUENCE, SYNC_WORDS, THREAD,
} from './mailbox.js';
import { warn } from '../common/log.js';
import { spawn } from '../common/spawn.js';

/** @import { Code } from './mailbox.js' */

const POLLS = 2000; // reads of the count of arrivals before the leader sleeps, some 10 us in all
const MAX_SLEEP = 1; // ms
const IDLE = 10_000; // ms without Programs after which threads end: each takes some megabytes
const ANSWER_LIMIT = 5000; // ms: a thread takes about 100 to start
const AGAIN = 60_000; // ms after which threads that failed are tried again: the computer may have slept

export class ThreadPool {
  /** @param {string} url of the worker's file @param {boolean} [sleeps] whether the leading thread may sleep: a page may not */
  constructor(url, sleeps = true) {
    this.url = url;
    this.sleeps = sleeps;
    /** By number, from 1. @type {Map<number, import('../common/platform.js').Port>} */
    this.workers = new Map();
    /** Threads that failed or did not answer. While a Program is on threads, the pool does not try them again. @type {Set<number>} */
    this.failed = new Set();
    /** When the last one failed, in milliseconds. */
    this.failure = 0;
    this.control = new Int32Array(new SharedArrayBuffer(CONTROL_BYTES));
    this.programs = 0;
    this.teams = 0;
    /** Sends one message at a time, because each takes all threads to their event loops and back. @type {Promise<unknown>} */
    this.last = Promise.resolve();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  /**
   * A Program's code on several threads; null if there are no helpers.
   * @param {number} threads with the leader @param {WebAssembly.Module} module
   * @param {Record<string, WebAssembly.Memory>} imports @param {Code} code
   * @returns {Promise<ThreadTeam | null>}
   */
  async team(threads, module, imports, code) {
    const count = Math.min(threads, MAX_THREADS);
    const program = ++this.programs;
    const entries = Object.keys(code).filter((name) => name.startsWith('run_'));
    const helpers = await this.enqueue(async () => {
      if (!this.teams && performance.now() - this.failure > AGAIN) this.failed.clear();
      const tids = Array.from({ length: count - 1 }, (_, i) => i + 1);
      await Promise.all(tids.map((tid) => this.start(tid)));
      const found = await this.sendAll(tids, { program, module, imports, entries });
      if (found.length) this.teams++;
      return found;
    });
    if (!helpers.length) return null;
    return new ThreadTeam(this, program, count, helpers, imports.memory, code, entries);
  }

  /** @param {ThreadTeam} team */
  unload({ program, helpers }) {
    this.teams--;
    return this.enqueue(() => this.sendAll(helpers, { unload: program })).then(() => this.endIfIdle());
  }

  endIfIdle() {
    clearTimeout(this.timer);
    const endNow = async () => void (this.teams || this.end());
    if (!this.teams) this.timer = setTimeout(() => this.enqueue(endNow), IDLE);
  }

  /** @template T @param {() => Promise<T>} action @returns {Promise<T>} */
  enqueue(action) {
    const done = this.last.then(action);
    this.last = done.catch(() => {});
    return done;
  }

  /** Starts a thread, unless it runs or failed. @param {number} tid */
  async start(tid) {
    if (this.workers.has(tid) || this.failed.has(tid)) return;
    try {
      this.workers.set(tid, spawn(this.url, `${THREAD} ${tid}`));
    } catch (error) {
      return this.exclude(tid, /** @type {Error} */ (error).message);
    }
    await this.send(tid, { control: this.control.buffer, tid });
  }

  /** @param {number[]} tids @param {object} message @returns {Promise<number[]>} threads that handled it */
  async sendAll(tids, message) {
    const done = await Promise.all(tids.map((tid) => this.send(tid, message)));
    return tids.filter((_, i) => done[i]);
  }

  /**
   * Sends a message; excludes a thread that fails or does not answer.
   * @param {number} tid @param {object} message @returns {Promise<boolean>} whether the thread handled it
   */
  async send(tid, message) {
    const worker = this.workers.get(tid);
    if (!worker) return false;
    const answered = ask(worker, message, this.url);
    if (!('control' in message)) this.mail(tid, LISTEN);
    const failure = await answered;
    if (failure) this.exclude(tid, failure);
    return !failure;
  }

  /**
   * Excludes a thread. Runs do not need all threads, because the leader waits only for threads that have arrived.
   * @param {number} tid @param {string} reason
   */
  exclude(tid, reason) {
    if (!this.failed.size) warn(`fewer threads run than requested: ${reason}`);
    this.failed.add(tid);
    this.failure = performance.now();
    this.workers.get(tid)?.terminate();
    this.workers.delete(tid);
  }

  /** @param {number} tid @param {number} bit */
  mail(tid, bit) {
    Atomics.or(this.control, MAILBOXES + LINE * tid, bit);
    Atomics.notify(this.control, MAILBOXES + LINE * tid);
  }

  /** Ends the threads; the next Program starts them again. */
  end() {
    clearTimeout(this.timer);
    for (const worker of this.workers.values()) worker.terminate();
    this.workers.clear();
    this.control = new Int32Array(new SharedArrayBuffer(CONTROL_BYTES)); // a thread may take mail until it is gone
  }

  /**
   * Sleeps until `threads` threads have arrived, for MAX_SLEEP at most. A scheduler puts a thread that wakes up on the
   * core of the thread that woke it, and looks for another core only when that thread has slept and wakes up. After a
   * pause, ResNet-50 on two threads took 138 ms without this sleep, 80 with it.
   * @param {number} threads
   */
  gather(threads) {
    const { control } = this;
    for (let polls = 0; polls < POLLS; polls++) if (Atomics.load(control, ARRIVED) >= threads) return;
    const end = performance.now() + MAX_SLEEP;
    for (let left = MAX_SLEEP; left > 0; left = end - performance.now()) {
      const arrived = Atomics.load(control, ARRIVED);
      if (arrived >= threads) return;
      Atomics.wait(control, ARRIVED, arrived, left);
    }
  }

  /** Writes the command for threads that find RUN in their mailboxes. @param {number[]} fields */
  command(fields) {
    Atomics.add(this.control, SEQUENCE, 1);
    Atomics.store(this.control, ARRIVED, 0);
    fields.forEach((field, i) => Atomics.store(this.control, COMMAND + i, field));
    Atomics.add(this.control, SEQUENCE, 1);
  }
}

/**
 * Sends a message to a thread; resolves to the thread's error, or "".
 * @param {import('../common/platform.js').Port} worker @param {object} message @param {string} url of its code
 * @returns {Promise<string>}
 */
function ask(worker, message, url) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ANSWER_LIMIT, `a thread did not answer within ${ANSWER_LIMIT / 1000} s`);
    const done = (/** @type {string} */ failure) => {
      clearTimeout(timer);
      resolve(failure);
    };
    worker.onmessage = ({ data }) => done(data);
    worker.onerror = (event) => done(event.message || `the thread ${url} could not be started`);
    worker.postMessage(message);
  });
}

/** A Program's code on several threads. */
export class ThreadTeam {
  /**
   * @param {ThreadPool} pool @param {number} program @param {number} count of threads, an argument of the code @param {number[]} helpers
   * @param {WebAssembly.Memory} memory @param {Code} code @param {string[]} entries
   */
  constructor(pool, program, count, helpers, memory, code, entries) {
    this.pool = pool;
    this.program = program;
    this.count = count;
    this.helpers = helpers;
    this.code = code;
    this.entries = new Map(entries.map((name, i) => [name, i]));
    this.sync = new Int32Array(memory.buffer, 0, SYNC_WORDS);
  }

  /**
   * Runs `name(table, tid, threads, epoch)` on all threads; throws the error of the first thread that failed.
   * @param {string} name @param {number} table @param {boolean} isLong whether it pays to wait until threads arrive
   */
  run(name, table, isLong) {
    const { pool, sync, count, helpers } = this;
    const epoch = (Atomics.load(sync, EPOCH) + 1) | 0;
    sync[POISON] = 0;
    sync[AWAKE] = Number(!pool.sleeps);
    pool.command([this.program, this.entries.get(name) ?? -1, table, count, epoch]);
    for (const tid of helpers) pool.mail(tid, RUN);
    if (isLong && pool.sleeps) pool.gather(helpers.length);
    try {
      this.code[name](table, 0, count, epoch);
    } catch (error) {
      this.code.poison(0);
      throw sync[POISON] > 1 ? new Error(this.reason()) : error;
    }
  }

  reason() {
    const { control } = this.pool;
    return new TextDecoder().decode(new Uint8Array(control.buffer, 4 * (REASON + 1), control[REASON]).slice());
  }

  release() {
    this.pool.unload(this);
  }
}
