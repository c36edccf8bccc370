// Times of runs once they are steady: browsers optimise WebAssembly while it runs, so the first runs take longer.

import { quantile } from '../common.js';

export class SteadyTime {
  /** @param {number} warmUp first runs that do not count @param {number} [latest] runs of the median */
  constructor(warmUp, latest = 50) {
    this.left = warmUp;
    this.latest = latest;
    /** @type {number[]} */
    this.times = [];
  }

  /** The median of the latest runs, or null while the code warms up. @param {number} milliseconds */
  add(milliseconds) {
    if (this.left-- > 0) return null;
    this.times.push(milliseconds);
    if (this.times.length > this.latest) this.times.shift();
    return quantile(this.times, 0.5);
  }
}
