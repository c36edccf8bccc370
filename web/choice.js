// Whether a step pays on several threads, found out by running it both ways.

const TRIALS = 4; // calls each way before the first judgement
const RECENT = 0.25; // weight of the newest call in the mean
const PERIOD = 32; // calls until the other way is tried again; doubles up to LONGEST while the judgement stays
const LONGEST = 256;

/**
 * The cost model tells what is worth sharing where threads have a core each; whether they have is the machine's secret.
 * On a virtual machine that packs two threads onto one core BERT-tiny took 5 ms on two threads and 1.5 ms on one.
 */
export class Choice {
  constructor() {
    /** Milliseconds alone and shared, recent mean. */
    this.means = [0, 0];
    this.calls = 0;
    this.period = PERIOD;
    this.next = 2 * TRIALS + PERIOD; // the call that tries the other way
    this.better = false;
  }

  /** Whether the next call is to be shared. @returns {boolean} */
  shared() {
    const number = this.calls++;
    if (number < 2 * TRIALS) return number % 2 === 0;
    if (number < this.next) return this.better;
    this.period = Math.min(2 * this.period, LONGEST);
    this.next = number + this.period;
    return !this.better;
  }

  /** @param {boolean} shared @param {number} milliseconds */
  took(shared, milliseconds) {
    const way = Number(shared);
    const before = this.means[way];
    this.means[way] = before ? before + RECENT * (milliseconds - before) : milliseconds;
    const better = this.means[1] < this.means[0];
    if (better !== this.better) this.period = PERIOD;
    this.better = better;
  }
}
