// Sessions that save power rest between runs while the processor is under pressure, that is hot or throttled
// (https://www.w3.org/TR/compute-pressure/). Without the API nothing changes.

import { race } from '../engine/cancellation.js';
import { untilVisible } from './visibility.js';

/** @import { Cancellation } from '../engine/cancellation.js' */

/** @typedef {new (listener: (records: { state: string }[]) => void) => { observe(source: 'cpu', how: { sampleInterval: number }): Promise<void>, disconnect(): void }} PressureObserver */

/** A rest after a run, as a multiple of the time of the run, by pressure. @type {Record<string, number>} */
const RESTS = { nominal: 0, fair: 0, serious: 1, critical: 3 };
const LONGEST = 2000; // ms
const INTERVAL = 1000; // ms between samples of the pressure

let state = 'nominal';
/** @type {{ disconnect(): void } | null} */
let observer = null;
let users = 0;

/** Begins to watch the pressure, for one more session. */
function watch() {
  const { PressureObserver: Observer } = /** @type {{ PressureObserver?: PressureObserver }} */ (globalThis);
  if (users++ || !Observer) return;
  const made = new Observer((records) => { state = records[records.length - 1].state; });
  observer = made;
  Promise.resolve(made.observe('cpu', { sampleInterval: INTERVAL })).catch(() => {}); // a policy of the page may forbid it
}

/** The rests of one session. */
export class Rests {
  ended = -Infinity;
  took = 0;

  constructor() {
    watch();
  }

  /** Notes a run. @param {number} start in milliseconds */
  note(start) {
    this.ended = performance.now();
    this.took = this.ended - start;
  }

  /**
   * Resolves when the page is visible and the session has rested, or when one of the signals aborts.
   * @param {Cancellation | null} cancellation of the run that waits @param {AbortSignal[]} ends
   */
  async untilFit(cancellation, ...ends) {
    await untilVisible(cancellation, ...ends);
    await this.rest(cancellation, ...ends);
  }

  /**
   * Resolves when the session has rested, or when one of the signals aborts.
   * @param {Cancellation | null} cancellation of the run that waits @param {AbortSignal[]} ends
   */
  async rest(cancellation, ...ends) {
    const rest = Math.min(RESTS[state] * this.took, LONGEST) - (performance.now() - this.ended);
    if (!(rest > 0)) return;
    const listening = new AbortController();
    const waiting = new Promise((resolve) => {
      const timer = setTimeout(resolve, rest);
      for (const end of ends) end.addEventListener('abort', resolve, { signal: listening.signal });
      listening.signal.addEventListener('abort', () => clearTimeout(timer));
    });
    await race(cancellation, waiting, () => {}).finally(() => listening.abort());
  }

  /** Ends the watch of the pressure with the last session. */
  end() {
    if (--users) return;
    observer?.disconnect();
    observer = null;
    state = 'nominal';
  }
}
