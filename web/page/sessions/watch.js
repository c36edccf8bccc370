// Counts the runs of a session, and tells the listeners of ort.on('session', …) of them.

import { Terminated } from '../../common/errors.js';
import { emit, isHeard } from '../../common/events.js';
import { RunCounts } from '../../runtime/metrics.js';

/** @import { EngineCounts, KernelTiming, State } from '../../common/protocol.js' */
/** What an event tells of a run. @typedef {{ place: string, kernels: readonly KernelTiming[] }} Run */

let last = 0;
/** @type {EngineCounts} */
const NOTHING = { recovered: 0, compiled: 0, runs: 0, planned: 0, bytes: 0 };

export class Watch {
  id = ++last; // in this page
  counts = new RunCounts();
  /** Runs that have not ended. */
  busy = 0;
  /** After a fault. @type {State} */
  state = 'ready';
  /** The latest counts of the executors. */
  engine = NOTHING;

  /** @param {string} name for people */
  constructor(name) {
    this.name = name;
  }

  /** @param {string} type @param {object} more */
  tell(type, more) {
    if (isHeard('session')) emit('session', { type, session: this.id, name: this.name, ...more });
  }

  /** @param {State} state */
  changed = (state) => {
    this.state = state;
    this.tell('state', { state });
  };

  /** @template T @param {(run: Run) => Promise<T>} work @returns {Promise<T>} of a run, which is counted */
  async during(work) {
    const start = performance.now();
    const run = { place: '', kernels: [] };
    this.busy++;
    try {
      const result = await work(run);
      const milliseconds = performance.now() - start;
      if (this.counts.succeed(milliseconds)) this.counts.settle();
      this.tell('run', { outcome: 'succeeded', start, milliseconds, ...run });
      return result;
    } catch (error) {
      const outcome = this.counts.fail(error instanceof Terminated);
      this.tell('run', { outcome, error, start, milliseconds: performance.now() - start, ...run });
      throw error;
    } finally {
      this.busy--;
    }
  }
}
