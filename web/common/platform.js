// Functions that differ between platforms, for browsers. web/node/platform.js replaces some of them in Node.js.

import { InvalidInput } from './errors.js';

const HINT = 'such as https://host/file; a worker that started from a blob: or data: address needs whole ones';

/**
 * A worker, or what stands for one. ref: keeps a program in Node.js running.
 * @typedef {{ postMessage(message: unknown, transfer?: Transferable[]): void, terminate(): void, ref?(): void, unref?(): void,
 *   onmessage: ((event: MessageEvent) => void) | null, onerror: ((event: ErrorEvent) => void) | null,
 *   onmessageerror: ((event: MessageEvent) => void) | null }} Port
 */
/** @typedef {new (url: string, options: { type: 'module', name: string }) => Port} PortClass */

export const platform = {
  /** Null in service workers, which have no workers. @returns {PortClass | null} */
  worker: () => globalThis.Worker ?? null,

  /** Imports a module of the engine; null if import() works. @type {(<Module>(url: string) => Promise<Module>) | null} */
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
  address(text, base = globalThis.document?.baseURI ?? globalThis.location?.href) {
    try {
      return new URL(text, base).href;
    } catch (cause) {
      throw new InvalidInput(`"${text}" is not a valid address`, { hint: HINT, cause });
    }
  },

  /** Whether a file exists that is no page: servers of single-page applications answer index.html for files that they lack. @param {string} url */
  async exists(url) {
    const ask = async (/** @type {string} */ method) => {
      const response = await fetch(url, { method });
      response.body?.cancel();
      return response;
    };
    try {
      const head = await ask('HEAD');
      const { ok, headers } = head.ok || head.status === 404 ? head : await ask('GET'); // servers may refuse HEAD
      return ok && !/^text\/html\b/i.test(headers.get('content-type') ?? '');
    } catch {
      return false;
    }
  },
};
