// What differs between the places that this package runs in: here as in browsers; in Node.js web/node/platform.js changes it.

export const platform = {
  /** Null where there is none, as in service workers. @returns {typeof Worker | null} */
  worker: () => globalThis.Worker ?? null,

  /** A module of the engine's, where import() cannot be called. @type {((url: string) => Promise<any>) | null} */
  module: null,

  /** A file that code which cannot wait needs at once. @param {string} url @returns {ArrayBuffer} */
  readNow(url) {
    const request = new XMLHttpRequest();
    request.open('GET', url, false);
    request.responseType = 'arraybuffer';
    request.send();
    if (request.status !== 200) throw new Error(`${url}: HTTP ${request.status}`);
    return request.response;
  },

  /** What `now` may be asked for, where it has to be there before. @param {string[]} _ addresses */
  prefetch: async (..._) => {},

  /** Whether its workers tell how they ended: those of browsers do not. */
  reportsWorkerExit: false,

  processors: () => globalThis.navigator?.hardwareConcurrency || 1,

  /** A whole address. @param {string} text @param {string} [base] */
  address: (text, base = globalThis.document?.baseURI ?? globalThis.location?.href) => new URL(text, base).href,

  /** Whether there is a file. @param {string} url */
  async exists(url) {
    try {
      return (await fetch(url, { method: 'HEAD' })).ok;
    } catch {
      return false;
    }
  },
};
