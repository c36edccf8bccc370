// Times runs to choose between one thread and several.

import { fastest } from '../runtime/trial.js';

/** The candidates: one thread, several threads. */
export const [ALONE, SHARED] = [0, 1];

const TURN = 100; // ms of a turn on several threads, at least two runs: a scheduler needs time to spread sleeping threads over cores
const TURN_ALONE = 30; // ms of a turn on one thread, at least two runs: there is nothing to spread
const SECOND_TURN = 300; // ms of a second turn on several threads, if they seem to lose: the other core may soon be free again
const WORSE = 2; // threads that take this many times as long as one thread get no second turn
const RECENT = 9; // runs whose median counts, because one run may lose its core for 12 ms
const PERIOD = 1000; // ms, and ten runs, until the other candidate is tried again; doubles up to LONGEST while the winner stays
const BUDGET = 0.02; // share of the time that turns on a slower single thread may cost: the period is long enough for that
const UNSURE = 4000; // ms: the longest such period while only one run on one thread was timed, before the code was warm
const EARLY = 250; // ms of the period after a first decision against threads: at a page's start the browser compiles code on the other core
const LONGEST = 8_000;
const LONG = 4; // ms: longer runs count as long
const PRICE = 1.1; // factor on the time of a shared run, because it takes a core from the browser's own threads

/**
 * The cost model says which steps are worth sharing if each thread has a core, but no API says whether it has one. On a virtual machine
 * that packs two threads onto one core BERT-tiny took 1.8 ms on two threads and 1.0 ms on one.
 * The trial compares whole runs, not steps, because data that another core wrote must be fetched from it: a step of
 * gpt2_tiny took 0.11 ms shared and 0.15 alone, but a run 0.36 and 0.20.
 */
export class ThreadTrial {
  current = SHARED; // candidate of the next run
  isSettled = false; // whether `current` is the winner
  runs = 0; // since the turn began, or since the decision
  /** Times of the recent runs of each candidate, in ms. @type {[number[], number[]]} */
  times = [[], []];
  spent = 0; // ms since the turn began, or since the decision
  turn = TURN; // ms, at least
  period = EARLY / 2; // ms after the decision until the other candidate has a turn
  hadSecondTurn = false; // whether several threads had a second turn since they last won

  /** Counts a run on one thread, before others may join. @param {number} milliseconds */
  tookCold(milliseconds) {
    this.times[ALONE] = [milliseconds];
  }

  /** Counts a run of `current`. @param {number} milliseconds */
  took(milliseconds) {
    const { current, times } = this;
    const before = !this.isSettled && this.runs === 0 ? [] : times[current];
    times[current] = [milliseconds, ...before].slice(0, RECENT);
    this.runs++;
    this.spent += milliseconds;
    if (!this.isSettled) {
      if (this.spent >= this.turn && this.runs >= 2) this.decide();
    } else if (this.spent >= this.period && this.runs >= 10 || this.winner() !== current) this.begin(1 - current);
  }

  /** Ends a turn of `current`. */
  decide() {
    const { current, times } = this;
    if (!times[1 - current].length) return this.begin(1 - current);
    const winner = this.winner();
    if (winner === ALONE && !this.hadSecondTurn && this.median(SHARED) < WORSE * this.median(ALONE)) {
      this.hadSecondTurn = true;
      return this.begin(SHARED, SECOND_TURN);
    }
    this.period = winner === current ? PERIOD : Math.min(2 * this.period, LONGEST);
    if (winner === SHARED) {
      this.hadSecondTurn = false;
      const [alone, shared] = [this.median(ALONE), this.median(SHARED)];
      const loss = Math.max(TURN_ALONE + alone, 2 * alone) * (1 - shared / alone); // of a turn on one thread
      const least = Math.min(loss / BUDGET, times[ALONE].length > 1 ? Infinity : UNSURE);
      this.period = Math.max(this.period, least);
    }
    this.begin(winner);
    this.isSettled = true;
  }

  winner() {
    return fastest([this.median(ALONE), this.median(SHARED)], 1 / PRICE);
  }

  /** Whether runs take long compared with the time that threads need to wake up. */
  get isLong() {
    return Math.min(this.median(ALONE), this.median(SHARED)) > LONG;
  }

  /** The median time of recent runs. @param {number} candidate */
  median(candidate) {
    const times = this.times[candidate];
    return [...times].sort((a, b) => a - b)[times.length >> 1] ?? Infinity;
  }

  /** Begins a turn, or the time after a decision. @param {number} candidate @param {number} [turn] ms */
  begin(candidate, turn = candidate === SHARED ? TURN : TURN_ALONE) {
    this.current = candidate;
    this.isSettled = false;
    this.runs = 0;
    this.turn = turn;
    this.spent = 0;
  }
}
