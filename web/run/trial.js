// Times runs to choose among candidates that give the same results; pyruntime/native/execution/trial.py is its twin.

/**
 * The cheapest candidate. Candidate 0 is the default: another must cost less than `gain` times as much, because smaller
 * differences may be noise.
 * @param {number[]} costs @param {number} gain
 */
export function fastest(costs, gain) {
  const best = costs.indexOf(Math.min(...costs));
  return costs[best] < gain * costs[0] ? best : 0;
}

/**
 * Candidates take turns, `rounds` runs each. Then the candidate with the shortest run wins. After `retryAfter` more runs a new
 * trial begins, because other programs may have disturbed this one. Its callers time the runs.
 */
export class Trial {
  current = 0; // candidate of the next run
  best = 0; // winner of the latest complete trial
  runs = 0; // since the trial began, or since it settled
  settled = false; // whether `current` is the winner

  /** @param {number} candidates @param {number} gain @param {number} [rounds] @param {number} [retryAfter] runs */
  constructor(candidates, gain, rounds, retryAfter) {
    this.gain = gain;
    this.rounds = rounds;
    this.retryAfter = retryAfter;
    /** Times of each candidate's runs in this trial. @type {number[][]} */
    this.times = Array.from({ length: candidates }, () => []);
  }

  /** Forgets all times. */
  restart() {
    this.times = this.times.map(() => []);
    this.begin(0);
  }

  /** @param {number} candidate */
  begin(candidate) {
    this.current = candidate;
    this.settled = false;
    this.runs = 0;
  }

  /** Counts a run of `current`. @param {number} time in any unit */
  took(time) {
    const { times } = this;
    this.runs++;
    if (this.settled) {
      if (this.runs === this.retryAfter) this.restart();
      return;
    }
    times[this.current].push(time);
    if (times.every(({ length }) => length === this.rounds)) this.settle(this.winner());
    else this.current = this.runs % times.length;
  }

  winner() {
    return fastest(this.times.map((times) => this.cost(times)), this.gain);
  }

  /** @param {number[]} times of a candidate */
  cost(times) {
    return Math.min(...times);
  }

  /** @param {number} winner */
  settle(winner) {
    this.begin(winner);
    this.best = winner;
    this.settled = true;
  }
}
