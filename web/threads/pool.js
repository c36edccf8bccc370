// The engine's threads: started when a session first wants them, shared by all sessions, asleep when nothing runs.

import {
  ARRIVED, AWAKE, COMMAND, CONTROL_BYTES, EPOCH, LINE, LISTEN, MAILBOXES, MAX_THREADS, POISON, REASON, RUN, SEQUENCE, SYNC_WORDS, THREAD,
} from './mailbox.js';

/** @typedef {import('./mailbox.js').Code} Code */

const LOOKS = 2000; // at the count of arrivals before sleeping, some 10 us
const PATIENCE = 1; // ms

export class ThreadPool {
  /** @param {string} url of the worker's file @param {boolean} [sleeps] whether the thread that asks may sleep: a page's may not */
  constructor(url, sleeps = true) {
    this.url = url;
    this.sleeps = sleeps;
    /** Thread t is workers[t - 1]. @type {Worker[]} */
    this.workers = [];
    this.control = new Int32Array(new SharedArrayBuffer(CONTROL_BYTES));
    this.programs = 0;
    this.teams = 0;
    this.failed = false;
    /** Messages go out one at a time: each takes all threads to their event loops and back. @type {Promise<unknown>} */
    this.last = Promise.resolve();
  }

  /**
   * A Program's code on so many threads, the asking one among them; null, with one warning, where they cannot be had.
   * @param {number} threads @param {WebAssembly.Module} module @param {WebAssembly.Memory} memory @param {Code} code
   * @returns {Promise<ThreadTeam | null>}
   */
  async team(threads, module, memory, code) {
    if (this.failed) return null;
    try {
      return await this.form(threads, module, memory, code);
    } catch (error) {
      this.failed = true;
      console.warn(`pyruntime: one thread: ${/** @type {Error} */ (error).message}`);
      return null;
    }
  }

  /** @param {number} threads @param {WebAssembly.Module} module @param {WebAssembly.Memory} memory @param {Code} code */
  async form(threads, module, memory, code) {
    const count = Math.min(threads, MAX_THREADS);
    const program = ++this.programs;
    const entries = Object.keys(code).filter((name) => name.startsWith('run_'));
    await this.enqueue(async () => {
      while (this.workers.length < count - 1) await this.hire();
      const crew = this.workers.slice(0, count - 1);
      await Promise.all(crew.map((worker, i) => this.tell(worker, i + 1, { program, module, memory, entries })));
    });
    this.teams++;
    return new ThreadTeam(this, program, count, memory, code, entries);
  }

  /** @param {ThreadTeam} team */
  disband({ program, count }) {
    this.teams--;
    return this.enqueue(() =>
      Promise.all(this.workers.slice(0, count - 1).map((worker, i) => this.tell(worker, i + 1, { unload: program }))));
  }

  /** @template T @param {() => Promise<T>} action @returns {Promise<T>} */
  enqueue(action) {
    const done = this.last.then(action);
    this.last = done.catch(() => {});
    return done;
  }

  async hire() {
    const worker = new Worker(this.url, { type: 'module', name: `${THREAD} ${this.workers.length + 1}` });
    const tid = this.workers.length + 1;
    await this.tell(worker, tid, { control: this.control.buffer, tid });
    this.workers.push(worker);
  }

  /** @param {Worker} worker @param {number} tid @param {object} message @returns {Promise<void>} when it is done */
  tell(worker, tid, message) {
    return new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => (data ? reject(new Error(data)) : resolve());
      worker.onerror = ({ message: reason }) => reject(new Error(reason || `the thread ${this.url} could not be started`));
      worker.postMessage(message);
      if (!('control' in message)) this.mail(tid, LISTEN);
    });
  }

  /** @param {number} tid @param {number} bit */
  mail(tid, bit) {
    Atomics.or(this.control, MAILBOXES + LINE * tid, bit);
    Atomics.notify(this.control, MAILBOXES + LINE * tid);
  }

  /** Ends the threads. */
  end() {
    for (const worker of this.workers) worker.terminate();
  }

  /**
   * Sleeps until so many threads have come, for a moment at most. A scheduler puts a thread that wakes up beside its waker
   * and looks for another core when the waker wakes in its turn: ResNet-50 after a pause took 138 ms on two threads without
   * this, 80 with it. @param {number} threads
   */
  gather(threads) {
    const { control } = this;
    for (let looks = 0; looks < LOOKS; looks++) if (Atomics.load(control, ARRIVED) >= threads) return;
    const end = performance.now() + PATIENCE;
    for (let left = PATIENCE; left > 0; left = end - performance.now()) {
      const arrived = Atomics.load(control, ARRIVED);
      if (arrived >= threads) return;
      Atomics.wait(control, ARRIVED, arrived, left);
    }
  }

  /** What threads do that take RUN out of their mailboxes from now on. @param {number[]} fields */
  command(fields) {
    Atomics.add(this.control, SEQUENCE, 1);
    Atomics.store(this.control, ARRIVED, 0);
    fields.forEach((field, i) => Atomics.store(this.control, COMMAND + i, field));
    Atomics.add(this.control, SEQUENCE, 1);
  }
}

/** A Program's code on several threads. */
export class ThreadTeam {
  /**
   * @param {ThreadPool} pool @param {number} program @param {number} count
   * @param {WebAssembly.Memory} memory @param {Code} code @param {string[]} entries
   */
  constructor(pool, program, count, memory, code, entries) {
    this.pool = pool;
    this.program = program;
    this.count = count;
    this.code = code;
    this.entries = new Map(entries.map((name, i) => [name, i]));
    this.sync = new Int32Array(memory.buffer, 0, SYNC_WORDS);
  }

  /**
   * Runs `name(table, tid, threads, epoch)` with the help of all threads; throws what stopped the first that stopped.
   * @param {string} name @param {number} table @param {boolean} long whether it pays to see threads arrive
   */
  run(name, table, long) {
    const { pool, sync, count } = this;
    const epoch = (Atomics.load(sync, EPOCH) + 1) | 0;
    sync[POISON] = 0;
    sync[AWAKE] = Number(!pool.sleeps);
    pool.command([this.program, this.entries.get(name) ?? -1, table, count, epoch]);
    for (let tid = 1; tid < count; tid++) pool.mail(tid, RUN);
    if (long && pool.sleeps) pool.gather(count - 1);
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
    this.pool.disband(this);
  }
}
