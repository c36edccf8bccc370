// Counts what the page has downloaded. Files that the browser has cached cost nothing.

import { $, bytes } from '../common.js';

export class Downloads {
  constructor() {
    /** Bytes of networks that earlier sessions of this page have loaded, and of the current one. */
    this.done = 0;
    this.current = 0;
  }

  /** @param {import('pyruntime').Progress} progress */
  note({ phase, loaded }) {
    if (phase !== 'download') return;
    if (loaded < this.current) this.done += this.current;
    this.current = loaded;
  }

  show() {
    const files = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType('resource')).filter(({ name }) => name.includes('/dist/'));
    const sum = (/** @type {(file: PerformanceResourceTiming) => number} */ of) => files.reduce((total, file) => total + of(file), 0);
    $('#engine-bytes').textContent = sum((file) => file.encodedBodySize) && !sum((file) => file.transferSize) ? '0 B (cached)' : bytes(sum((file) => file.transferSize));
    $('#model-bytes').textContent = this.done + this.current ? bytes(this.done + this.current) : '0 B (cached)';
  }
}
