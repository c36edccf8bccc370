// In which order kernels of few rows read codes, found out by runs. Mirrors pyruntime/native/execution/order_trial.py.

import { IN_TURNS, PREFETCH } from '../common/linear_memory.js';

const ORDERS = [0, IN_TURNS, PREFETCH];
const TRIED = 4 * ORDERS.length; // runs
const LEAST = 8192; // KiB that a run reads: less may stay in caches from run to run
const BETTER = 0.97; // times as long as the first order takes: less may be noise
const AGAIN = 1000; // runs until orders are tried anew: what took the processor may have misled them

/**
 * What is fastest depends on how a processor fetches ahead, which no one tells
 * (docs/design/weight-bandwidth.md#read-order-trial). The results are the same.
 * Runs count that read about as much as the first, on as many threads; each order has its turn in each round.
 */
export class OrderTrial {
  constructor() {
    /** Of the next run, and of one that does not count: the fastest, as far as is known. */
    this.order = this.best = ORDERS[0];
    /** KiB of a run, and whether it was on several threads. */
    this.read = 0;
    this.shared = false;
    /** Milliseconds of runs on trial. @type {number[]} */
    this.times = [];
    /** After the trial. */
    this.runs = 0;
  }

  /** A run read so many KiB in this time. @param {number} read @param {number} milliseconds @param {boolean} [shared] */
  took(read, milliseconds, shared = false) {
    if (read < LEAST) return;
    const settled = this.times.length === TRIED;
    if (settled && ++this.runs < AGAIN && read <= 1.5 * this.read) return;
    if (settled || shared !== this.shared || Math.abs(read - this.read) > this.read / 8) Object.assign(this, { read, shared, times: [], runs: 0 });
    else this.times.push(milliseconds);
    if (this.times.length === TRIED) this.order = this.best = this.fastest();
    else this.order = ORDERS[this.times.length % ORDERS.length];
  }

  fastest() {
    const [first, ...others] = ORDERS.map((_, n) => Math.min(...this.times.filter((_, i) => i % ORDERS.length === n)));
    const best = Math.min(...others);
    return best < BETTER * first ? ORDERS[1 + others.indexOf(best)] : ORDERS[0];
  }
}
