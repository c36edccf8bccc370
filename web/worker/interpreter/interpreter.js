// The one Python of a worker, started by who needs it first.

import { SessionFailed } from '../../common/errors.js';
import { Python } from './python.js';

/** @typedef {(p: import('../../common/protocol.js').Progress) => void} OnProgress */

export class Interpreter {
  constructor() {
    /** Where its files are. @type {import('../../common/protocol.js').Assets | null} */
    this.assets = null;
    /** Of them, what the page fetches. @type {import('./prefetched_files.js').PrefetchedFiles | null} */
    this.early = null;
    /** @type {Promise<Python> | null} */
    this.python = null;
    /** Who is told of its start. @type {Set<OnProgress>} */
    this.watchers = new Set();
    /** Tells the page that it cannot be started: another worker may try again. @type {(error: Error) => void} */
    this.fail = () => {};
    /** Whether the page ran Python of its own: then its operators are not those of other pages. */
    this.customised = false;
  }

  /** Python, started if it is not yet. @param {OnProgress} [progress] @returns {Promise<Python>} */
  async start(progress) {
    if (progress) this.watchers.add(progress);
    try {
      this.python ??= this.boot();
      return await this.python;
    } finally {
      if (progress) this.watchers.delete(progress);
    }
  }

  /** @returns {Promise<Python>} */
  async boot() {
    if (!this.assets) throw new SessionFailed('the engine is not started');
    try {
      const progress = (/** @type {number} */ loaded, /** @type {number} */ total) => this.watchers.forEach((watcher) => watcher({ phase: 'boot', loaded, total }));
      return await Python.boot(this.assets, this.early, progress, (error) => this.fail(error));
    } catch (error) {
      this.fail(/** @type {Error} */ (error)); // before those who wait for it: what they ask for next is for another worker
      await new Promise((done) => setTimeout(done, 0));
      throw error;
    } finally {
      this.early = null;
    }
  }

  /** Bytes of its memory. */
  async heap() {
    return (await this.python)?.heap() ?? 0;
  }
}
