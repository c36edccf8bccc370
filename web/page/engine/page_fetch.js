// Downloads of models through the page's `fetch`, if a program has replaced it: it may add headers, or answer with files of its own.

import { platform } from '../../common/platform.js';

/** The browser's own function as a text. That of Node.js has no fixed text. */
const NATIVE = /^function fetch\(\)\s*\{\s*\[native code\]\s*\}$/;

/** The page's `fetch` if it is not the browser's. */
export const replacedFetch = () => (platform.reportsWorkerExit || NATIVE.test(Function.prototype.toString.call(fetch)) ? null : fetch);

/**
 * A port that the worker sends requests to (web/worker/files/page_fetch.js).
 * @param {import('../../common/protocol.js').FetchFile} fetch @returns {MessagePort}
 */
export function servedFetch(fetch) {
  const { port1, port2 } = new MessageChannel();
  /** @type {Map<number, AbortController>} */
  const aborts = new Map();
  port1.onmessage = async ({ data: { id, url, init } }) => {
    if (!url) return aborts.get(id)?.abort();
    const abort = new AbortController();
    aborts.set(id, abort);
    try {
      const response = await fetch(url, { ...init, signal: abort.signal });
      await answer(port1, id, response);
    } catch (error) {
      port1.postMessage({ id, error: String(/** @type {Error} */ (error)?.message || error) });
    }
    aborts.delete(id);
  };
  return port2;
}

/** @param {MessagePort} port @param {number} id @param {Response} response a program's may have some of its members only */
async function answer(port, id, response) {
  const { body = await response.arrayBuffer(), ok, status = ok ? 200 : 500, statusText, headers = [] } = response;
  const message = { id, status, statusText, headers: [...headers] };
  try {
    port.postMessage({ ...message, body }, body instanceof ReadableStream ? [body] : []);
  } catch { // Safari cannot transfer streams
    port.postMessage({ ...message, body: await response.arrayBuffer() });
  }
}
