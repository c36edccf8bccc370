// Counts what the page has downloaded until its first result. Files that the browser has cached cost nothing, and those that
// the page stores later, for offline visits, do not count: no result waits for them.

import * as ort from 'pyruntime';
import { $, bytes } from '../common.js';
import { storedNetworks } from '../lib/networks.js';

const ENGINE = /\/dist\/(?!offline|assets)/;

export class Downloads {
  /** @param {string[]} stored addresses of networks that an earlier visit has stored */
  constructor(stored) {
    this.stored = stored;
    /** Bytes of each network, by its address. @type {Map<string, number>} */
    this.loaded = new Map();
    this.isShown = false;
  }

  /** What the browser has stored when the page opens. */
  static async begin() {
    return new Downloads(await storedNetworks());
  }

  /** Progress of stored networks tells of reading, not of downloads. @param {import('pyruntime').Progress} progress @param {string} address */
  note({ phase, loaded }, address) {
    if (phase !== 'download' || this.stored.includes(new URL(address, document.baseURI).href)) return;
    this.loaded.set(address, loaded);
  }

  async show() {
    if (this.isShown) return;
    this.isShown = true;
    const networks = [...this.loaded.values()].reduce((sum, size) => sum + size, 0);
    $('#model-bytes').textContent = networks ? bytes(networks) : '0 B (cached)';
    const files = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType('resource')).filter(({ name }) => ENGINE.test(name));
    const own = files.map(({ name, transferSize }) => ({ url: name, bytes: transferSize }));
    const { downloads } = await ort.stats();
    const engine = [...own, ...downloads].filter(({ url }) => ENGINE.test(url)).reduce((sum, file) => sum + file.bytes, 0);
    if (engine && files.every(({ encodedBodySize, decodedBodySize }) => encodedBodySize === decodedBodySize)) {
      $('#compression').textContent = 'This host does not compress, so this page has downloaded more.';
    }
    $('#engine-bytes').textContent = engine ? bytes(engine) : '0 B (cached)';
  }
}
