// Whether runs pay on several threads, found out by running both ways.

const BLOCK = 4; // runs in a row that try a way; the first does not count, for threads that slept are slow at first
const RECENT = 0.25; // weight of the newest run in the mean of the way that is used
const PERIOD = 32; // runs until the other way is tried again; doubles up to LONGEST while the judgement stays
const LONGEST = 2048;
const PRICE = 1.15; // of a shared run, for the core that it takes from others: the browser has threads of its own

/**
 * The cost model tells what is worth sharing where threads have a core each; whether they have is the machine's secret.
 * On a virtual machine that packs two threads onto one core BERT-tiny took 5 ms on two threads and 1.5 ms on one.
 * Whole runs are compared and not steps: what other cores wrote must be fetched from them (gpt2_tiny's step took 0.11 ms
 * shared and 0.15 alone, its run 0.36 and 0.20).
 */
export class Choice {
  constructor() {
    /** Milliseconds a run, alone and shared. */
    this.times = [Infinity, Infinity];
    /** Whether runs are shared now. */
    this.shared = true;
    /** Runs left of the block that tries this way. */
    this.trying = BLOCK;
    this.period = PERIOD;
    this.left = 0;
  }

  /** A run, the way that `shared` says, took so long. @param {number} milliseconds */
  took(milliseconds) {
    const way = Number(this.shared);
    if (this.trying) {
      const before = this.trying >= BLOCK - 1 ? 0 : this.times[way];
      this.times[way] = before + milliseconds / (BLOCK - 1);
      if (--this.trying === 0) this.judge();
      return;
    }
    this.times[way] += RECENT * (milliseconds - this.times[way]);
    if (--this.left <= 0 || this.cost(way) > this.cost(1 - way)) this.attempt(!this.shared);
  }

  /** Goes on the better way. */
  judge() {
    const way = Number(this.shared);
    if (this.times[1 - way] === Infinity) return this.attempt(!this.shared);
    const better = this.cost(way) < this.cost(1 - way);
    this.period = better ? PERIOD : Math.min(2 * this.period, LONGEST);
    if (!better) this.shared = !this.shared;
    this.left = this.period;
  }

  /** @param {number} way */
  cost(way) {
    return this.times[way] * (way ? PRICE : 1);
  }

  /** @param {boolean} shared */
  attempt(shared) {
    this.shared = shared;
    this.trying = BLOCK;
  }
}
