// The one Python of a worker, which starts when it is first needed.

import { SessionFailed } from '../../common/errors.js';
import { Python } from './python.js';

/** @import { PythonModel } from './python_model.js' */
/** @typedef {(p: import('../../common/protocol.js').Progress) => void} OnProgress */

export class Interpreter {
  /** Addresses of its files. @type {import('../../common/protocol.js').Assets | null} */
  assets = null;
  /** Files that the page fetches. @type {import('./prefetched_files.js').PrefetchedFiles | null} */
  prefetched = null;
  /** @type {Promise<Python> | null} */
  python = null;
  /** Listeners of the start in progress. @type {Set<OnProgress>} */
  listeners = new Set();
  /** Whether the page ran its own Python code: then its operators may differ from those of other pages. */
  customised = false;
  /** Providers that users add (web/worker/providers/added_providers.js). @type {{ register(address: string): Promise<string>,
   *  open(source: object, python: Python, read: () => PythonModel): Promise<PythonModel> } | null} */
  added = null;

  /** Reports to the page that Python cannot start: another worker may try again. @type {(error: Error) => void} */
  fail = () => {};

  /** Python, started if needed. @param {OnProgress} [progress] @returns {Promise<Python>} */
  async start(progress) {
    if (progress) this.listeners.add(progress);
    try {
      this.python ??= this.boot();
      return await this.python;
    } finally {
      if (progress) this.listeners.delete(progress);
    }
  }

  /** @returns {Promise<Python>} */
  async boot() {
    if (!this.assets) throw new SessionFailed('the engine is not started');
    const progress = (/** @type {number} */ loaded, /** @type {number} */ total) => {
      for (const listener of this.listeners) listener({ phase: 'boot', loaded, total });
    };
    try {
      return await Python.boot(this.assets, this.prefetched, progress, (error) => this.fail(error));
    } catch (error) {
      this.fail(/** @type {Error} */ (error)); // before callers' promises reject, so that their next calls go to another worker
      await new Promise((done) => setTimeout(done, 0));
      throw error;
    } finally {
      this.prefetched = null;
    }
  }

  /** Bytes of its memory. */
  async heap() {
    return (await this.python)?.heap() ?? 0;
  }
}
