// Times runs to choose the order in which GEMV kernels read quantised weights; pyruntime/native/execution/order_trial.py is
// its twin.

import { IN_TURNS, PREFETCH } from '../common/linear_memory.js';
import { Trial } from './trial.js';

const ORDERS = [0, IN_TURNS, PREFETCH];
const LEAST = 8192; // KiB that a run reads: less may stay in caches from run to run

/**
 * Processors prefetch differently, and no API describes how (docs/design/weight-bandwidth.md#read-order-trial). The results are
 * the same in each order. Only runs that read about as many weights on as many threads are compared.
 */
export class OrderTrial {
  constructor() {
    this.trial = new Trial(ORDERS.length, 0.97, 4, 1000);
    /** KiB of weights that a run of this trial reads. */
    this.read = 0;
    /** Whether runs of this trial use several threads. */
    this.isShared = false;
  }

  /** The order of the next run. */
  get order() {
    return ORDERS[this.trial.current];
  }

  /** The order of a run that does not count for the trial: the fastest known. */
  get best() {
    return ORDERS[this.trial.best];
  }

  /**
   * Counts a run.
   * @param {number} read KiB of weights @param {number} milliseconds @param {boolean} [isShared]
   */
  took(read, milliseconds, isShared = false) {
    if (read < LEAST) return;
    const isOther = !this.trial.settled && (isShared !== this.isShared || Math.abs(read - this.read) > this.read / 8);
    if (isOther || read > 1.5 * this.read) {
      Object.assign(this, { read, isShared });
      this.trial.restart();
    } else this.trial.took(milliseconds);
  }
}
