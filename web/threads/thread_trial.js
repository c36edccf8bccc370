// Whether runs pay on several threads, found out by running both ways.

const TRIAL = 100; // ms of a trial, and at least two runs: a scheduler takes some to spread threads that slept over cores
const ALONE = 30; // ms of a trial without threads, and two runs: there is nothing to spread
const DOUBT = 300; // ms of another trial of threads where they seem to lose: what took the other core may be over soon
const WORSE = 2; // times as slow, where there is no doubt
const RECENT = 9; // runs whose median counts: one that lost its core for 12 ms tells nothing
const PERIOD = 1000; // ms, and ten runs, until the other way is tried again; doubles up to LONGEST while the judgement stays
const BUDGET = 0.02; // of the time, about, may be lost to seeing whether one thread is still slower: the period is longer then
const UNSURE = 4000; // ms, while all that is known of one thread is a run before the code was warm
// Of the first judgement, against threads: when a page starts, the browser compiles other code on the other core.
const EARLY = 250;
const LONGEST = 8_000;
const LONG = 4; // ms of a run
const PRICE = 1.1; // of a shared run, for the core that it takes from others: the browser has threads of its own

/**
 * The cost model tells what is worth sharing where threads have a core each; whether they have is the machine's secret.
 * On a virtual machine that packs two threads onto one core BERT-tiny took 1.8 ms on two threads and 1.0 ms on one.
 * Whole runs are compared and not steps: what other cores wrote must be fetched from them (gpt2_tiny's step took 0.11 ms
 * shared and 0.15 alone, its run 0.36 and 0.20).
 */
export class ThreadTrial {
  constructor() {
    /** Milliseconds of recent runs, alone and shared. @type {[number[], number[]]} */
    this.times = [[], []];
    /** Whether runs are shared now. */
    this.shared = true;
    /** Whether this way is on trial; runs and milliseconds since it began, or since the judgement. */
    this.trial = true;
    this.runs = 0;
    this.spent = 0;
    this.period = EARLY / 2;
    /** Of a trial, ms at least. */
    this.limit = TRIAL;
    /** Whether threads that lost were tried for longer; until they win. */
    this.doubted = false;
  }

  /** A run, the way that `shared` says, took so long. @param {number} milliseconds */
  took(milliseconds) {
    const way = Number(this.shared);
    if (this.trial && this.runs === 0) this.times[way] = [];
    this.times[way] = [milliseconds, ...this.times[way]].slice(0, RECENT);
    this.runs++;
    this.spent += milliseconds;
    const due = this.spent >= this.period && this.runs >= 10;
    if (!this.trial && (due || this.cost(way) > this.cost(1 - way))) this.begin(!this.shared, true);
    else if (this.trial && this.spent >= this.limit && this.runs >= 2) this.judge(way);
  }

  /** A run alone, before threads may join. @param {number} milliseconds */
  began(milliseconds) {
    this.times[0] = [milliseconds];
  }

  /** Goes on the better way. @param {number} way that was on trial */
  judge(way) {
    if (!this.times[1 - way].length) return this.begin(!this.shared, true);
    const better = this.cost(way) < this.cost(1 - way);
    const shared = this.shared === better;
    if (!shared && !this.doubted && this.median(1) < WORSE * this.median(0)) {
      this.doubted = true;
      return this.begin(true, true, DOUBT);
    }
    if (shared) this.doubted = false;
    this.period = better ? PERIOD : Math.min(2 * this.period, LONGEST);
    if (shared) this.period = Math.max(this.period, this.wait);
    this.begin(shared, false);
  }

  /** Milliseconds after which a trial without threads loses no more than BUDGET. */
  get wait() {
    const [alone, shared] = [this.median(0), this.median(1)];
    const loss = Math.max(ALONE + alone, 2 * alone) * (1 - shared / alone);
    return Math.min(loss / BUDGET, this.times[0].length > 1 ? Infinity : UNSURE);
  }

  /** Whether runs take long beside what it takes threads to wake up. */
  get long() {
    return Math.min(this.median(0), this.median(1)) > LONG;
  }

  /** @param {number} way */
  cost(way) {
    return this.median(way) * (way ? PRICE : 1);
  }

  /** Of recent runs. @param {number} way */
  median(way) {
    const sorted = [...this.times[way]].sort((a, b) => a - b);
    return sorted[sorted.length >> 1] ?? Infinity;
  }

  /** @param {boolean} shared @param {boolean} trial @param {number} [limit] ms */
  begin(shared, trial, limit = shared ? TRIAL : ALONE) {
    this.limit = limit;
    this.shared = shared;
    this.trial = trial;
    this.runs = this.spent = 0;
  }
}
