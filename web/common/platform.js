// Functions that differ between platforms, for browsers. web/node/platform.js replaces some of them in Node.js.

export const platform = {
  /** Null in service workers, which have no workers. @returns {typeof Worker | null} */
  worker: () => globalThis.Worker ?? null,

  /** Imports a module of the engine; null if import() works. @type {((url: string) => Promise<any>) | null} */
  module: null,

  /** Reads a file synchronously. @param {string} url @returns {ArrayBuffer} */
  readNow(url) {
    const request = new XMLHttpRequest();
    request.open('GET', url, false);
    request.responseType = 'arraybuffer';
    request.send();
    if (request.status !== 200) throw new Error(`${url}: HTTP ${request.status}`);
    return request.response;
  },

  /** Fetches files for `readNow`, on platforms that cannot read synchronously. @param {string[]} _ addresses */
  prefetch: async (..._) => {},

  /** Whether an event reports that a worker ended. Browsers have none. */
  reportsWorkerExit: false,

  processors: () => globalThis.navigator?.hardwareConcurrency || 1,

  /** An absolute address. @param {string} text @param {string} [base] */
  address: (text, base = globalThis.document?.baseURI ?? globalThis.location?.href) => new URL(text, base).href,

  /** Whether a file exists. @param {string} url */
  async exists(url) {
    try {
      return (await fetch(url, { method: 'HEAD' })).ok;
    } catch {
      return false;
    }
  },
};
