// In which order kernels of few rows read weights, found out by runs. Mirrors pyruntime/native/order_trial.py.

const ORDER = 528; // in the reserved bytes at address 0 (providers/wasm/schedules/streams.py), and behind it how much was read
const ORDERS = [0, 1, 4, 2]; // as they lie; codes in turns; asked for ahead; floats one after the other, too
const ROUNDS = 4;
const LEAST = 8192; // KiB that a run reads: less may stay in caches from run to run
const BETTER = 0.97; // times as long as the first order takes: less may be noise

/**
 * What is fastest depends on how a processor fetches ahead, which no one tells (docs/adr/0114). The results are the same.
 * Runs count that read about as much as the one before, on as many threads; each order has its turn in each round.
 */
export class OrderTrial {
  constructor() {
    /** KiB of a run. */
    this.read = 0;
    /** Whether on several threads. */
    this.shared = false;
    /** Milliseconds of runs on trial. @type {number[]} */
    this.times = [];
    this.settled = false;
  }

  /** A run took so long; sets the next one's order. @param {Uint8Array} memory @param {number} milliseconds @param {boolean} [shared] */
  took(memory, milliseconds, shared = false) {
    const words = new Int32Array(memory.buffer, memory.byteOffset + ORDER, 2);
    const read = words[1];
    words[1] = 0;
    if (read < LEAST || (this.settled && read <= 1.5 * this.read)) return;
    if (this.settled || shared !== this.shared || Math.abs(read - this.read) > this.read / 8) {
      Object.assign(this, { read, shared, times: [], settled: false });
    } else {
      this.times.push(milliseconds);
      this.settled = this.times.length === ROUNDS * ORDERS.length;
    }
    words[0] = this.settled ? this.best() : ORDERS[this.times.length % ORDERS.length];
  }

  best() {
    const [first, ...others] = ORDERS.map((_, n) => Math.min(...this.times.filter((_, i) => i % ORDERS.length === n)));
    const best = Math.min(...others);
    return best < BETTER * first ? ORDERS[1 + others.indexOf(best)] : ORDERS[0];
  }
}
