// Whether a step pays on several threads, found out by running it both ways.

const BLOCK = 4; // calls in a row that try a way; the best of them counts, for threads that slept are slow at first
const RECENT = 0.25; // weight of the newest call in the mean of the way that is used
const PERIOD = 32; // calls until the other way is tried again; doubles up to LONGEST while the judgement stays
const LONGEST = 256;

/**
 * The cost model tells what is worth sharing where threads have a core each; whether they have is the machine's secret.
 * On a virtual machine that packs two threads onto one core BERT-tiny took 5 ms on two threads and 1.5 ms on one.
 */
export class Choice {
  constructor() {
    /** Milliseconds a call, alone and shared. */
    this.times = [Infinity, Infinity];
    /** Whether calls are shared now. */
    this.shared = true;
    /** Calls left of the block that tries this way. */
    this.trying = BLOCK;
    this.period = PERIOD;
    this.left = 0;
  }

  /** A call, the way that `shared` says, took so long. @param {number} milliseconds */
  took(milliseconds) {
    const way = Number(this.shared);
    if (this.trying) {
      this.times[way] = Math.min(this.trying === BLOCK ? Infinity : this.times[way], milliseconds);
      if (--this.trying === 0) this.judge();
      return;
    }
    this.times[way] += RECENT * (milliseconds - this.times[way]);
    const other = this.times[1 - way];
    if (--this.left <= 0 || this.times[way] > other) this.attempt(!this.shared);
  }

  /** Goes on the better way. */
  judge() {
    const way = Number(this.shared);
    if (this.times[1 - way] === Infinity) return this.attempt(!this.shared);
    const better = this.times[way] <= this.times[1 - way];
    this.period = better ? PERIOD : Math.min(2 * this.period, LONGEST);
    if (!better) this.shared = !this.shared;
    this.left = this.period;
  }

  /** @param {boolean} shared */
  attempt(shared) {
    this.shared = shared;
    this.trying = BLOCK;
  }
}
