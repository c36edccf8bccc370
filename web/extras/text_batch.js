// Runs texts of one generator in turns. pyruntime/runtime/text_batch.py decides what runs (docs/adr/0070).

import { free } from './decoder.js';

/** @typedef {import('../runtime/text_batch.js').BatchHost} BatchHost */

/** What the shared code needs of a page. @implements {BatchHost} */
export class Turns {
  /** Ends with the work that has the decoders. @type {Promise<void> | null} */
  busy = null;

  /** @param {(error: unknown) => unknown} told an error of a run as the caller gets it */
  constructor(told) {
    this.told = told;
  }

  /** @param {() => boolean} isNeeded */
  async begin(isNeeded) {
    while (this.busy && isNeeded()) await this.busy;
    if (!isNeeded()) return false;
    this.busy = new Promise((resolve) => { this.resolve = resolve; });
    return true;
  }

  end() {
    this.busy = null;
    this.resolve?.();
  }

  /** @param {AbortSignal | null} signal */
  isStopped(signal) {
    return Boolean(signal?.aborted);
  }

  /** @param {import('./decoder.js').Tensor[]} tensors @param {import('./decoder.js').Tensor[]} used */
  free(tensors, used) {
    free(tensors, used);
  }
}
