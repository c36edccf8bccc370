// Cancels calls of a page: by an AbortSignal, or by `terminate` of run options.

import { InvalidInput, Terminated } from '../../common/errors.js';
import { TICK } from '../../common/stop.js';

/** @typedef {{ signal?: AbortSignal | null, terminate?: boolean }} StopOptions of run options */

export class Cancellation {
  /** @param {StopOptions} options @param {string} what the call does, for the error */
  constructor(options, what) {
    const { signal } = options;
    if (signal && typeof signal.addEventListener !== 'function') {
      throw new InvalidInput('signal must be an AbortSignal', { hint: 'new AbortController().signal' });
    }
    this.signal = signal ?? null;
    this.options = options;
    this.what = what;
  }

  /**
   * Throws if the signal is aborted already.
   * @param {AbortSignal | undefined} signal @param {string} what
   * @returns {Cancellation | null} null without a signal
   */
  static of(signal, what) {
    const made = signal ? new Cancellation({ signal }, what) : null;
    made?.check();
    return made;
  }

  get isCancelled() {
    return this.signal?.aborted || this.options.terminate === true;
  }

  /** The error with which the call rejects. */
  get error() {
    const [why, cause] = this.signal?.aborted ? ['its signal is aborted', this.signal.reason] : ['terminate is set', undefined];
    return new Terminated(`${this.what} was stopped: ${why}`, { cause });
  }

  check() {
    if (this.isCancelled) throw this.error;
  }

  /** Checks again after synchronous work: the caller may have cancelled it in the lines after the call. */
  async checkLater() {
    await null;
    this.check();
  }

  /**
   * Calls `stop` when the call is cancelled. It polls `terminate`, because setting it fires no event.
   * @type {import('../../common/protocol.js').Watch} returns a function that ends this
   */
  watch = (stop) => {
    const timer = setInterval(() => this.options.terminate === true && stop(), TICK);
    this.signal?.addEventListener('abort', stop, { once: true });
    return () => {
      clearInterval(timer);
      this.signal?.removeEventListener('abort', stop);
    };
  };

  /**
   * The call's result, also if the call was cancelled too late: weights have changed, and later calls depend on that.
   * @template T @param {Promise<T>} call @returns {Promise<T>}
   */
  outcome(call) {
    return call.catch((error) => { throw error instanceof Terminated ? this.error : error; });
  }

  /**
   * The call's result; drops it if the call was cancelled meanwhile.
   * @template T @param {Promise<T>} call @param {(late: T) => void} drop @returns {Promise<T>}
   */
  async result(call, drop) {
    try {
      const found = await call;
      if (!this.isCancelled) return found;
      drop(found);
    } catch (error) {
      if (!(error instanceof Terminated)) throw error;
    }
    throw this.error;
  }
}

/**
 * The call's result. If the call is cancelled, rejects at once, and drops a later result.
 * @template T @param {Cancellation | null} cancellation @param {Promise<T>} call @param {(late: T) => void} drop @returns {Promise<T>}
 */
export const race = (cancellation, call, drop) => (!cancellation ? call : new Promise((resolve, reject) => {
  const end = cancellation.watch(() => {
    end(); // the call may never end
    reject(cancellation.error);
  });
  cancellation.result(call, drop).then(resolve, reject).finally(end);
}));
