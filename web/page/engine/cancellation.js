// What a page stops a call with: an AbortSignal, or `terminate` of run options.

import { InvalidInput, Terminated } from '../../common/errors.js';
import { TICK } from '../../common/stop.js';

/** @typedef {{ signal?: AbortSignal | null, terminate?: boolean }} StopOptions of run options */

export class Cancellation {
  /** @param {StopOptions} options @param {string} what is stopped, for the error */
  constructor(options, what) {
    const { signal } = options;
    if (signal && typeof signal.addEventListener !== 'function') throw new InvalidInput('signal must be an AbortSignal', { hint: 'new AbortController().signal' });
    this.signal = signal ?? null;
    this.options = options;
    this.what = what;
  }

  get stopped() {
    return this.signal?.aborted || this.options.terminate === true;
  }

  /** What the call rejects with. */
  get error() {
    const [why, cause] = this.signal?.aborted ? ['its signal is aborted', this.signal.reason] : ['terminate is set', undefined];
    return new Terminated(`${this.what} was stopped: ${why}`, { cause });
  }

  /** Throws if the call is not wanted. */
  check() {
    if (this.stopped) throw this.error;
  }

  /** Whoever asked for what took no time may stop it all the same, in the lines behind. */
  async afterwards() {
    await null;
    this.check();
  }

  /** Calls `stop` once the call is wanted no more; gives what ends that. `terminate` may be set at any time: nothing tells of it. @type {import('../../common/protocol.js').Watch} */
  watch = (stop) => {
    const timer = setInterval(() => this.options.terminate === true && stop(), TICK);
    this.signal?.addEventListener('abort', stop, { once: true });
    return () => {
      clearInterval(timer);
      this.signal?.removeEventListener('abort', stop);
    };
  };

  /**
   * The call's result; what comes after it was stopped is dropped.
   * @template T @param {Promise<T>} call @param {(late: T) => void} drop @returns {Promise<T>}
   */
  async result(call, drop) {
    try {
      const found = await call;
      if (!this.stopped) return found;
      drop(found);
    } catch (error) {
      if (!(error instanceof Terminated)) throw error;
    }
    throw this.error;
  }

  /** The same, without waiting for a call that is wanted no more. @template T @param {Promise<T>} call @param {(late: T) => void} drop @returns {Promise<T>} */
  race(call, drop) {
    return new Promise((resolve, reject) => {
      const end = this.watch(() => {
        end(); // the call may never come to an end
        reject(this.error);
      });
      this.result(call, drop).then(resolve, reject).finally(end);
    });
  }
}
