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

/** The headers that downloads read. */
const HEADERS = ['content-encoding', 'content-length', 'content-range', 'content-type', 'etag', 'last-modified', 'retry-after'];

/** @param {MessagePort} port @param {number} id @param {Response} response a program's may have some of its members only */
async function answer(port, id, response) {
  const bytes = async () => ('arrayBuffer' in response ? response : await /** @type {Response} */ (response).blob()).arrayBuffer();
  const { body = await bytes(), ok, status, statusText, type, headers } = response;
  const message = { id, type, status: status >= 200 && status < 600 ? status : ok ? 200 : 500, statusText, headers: headersOf(headers) };
  try {
    port.postMessage({ ...message, body }, body instanceof ReadableStream ? [body] : []);
  } catch { // Safari cannot transfer streams
    port.postMessage({ ...message, body: await bytes() });
  }
}

/** @param {Headers | Record<string, string> | [string, string][] | undefined} headers of a program's response @returns {[string, string][]} */
function headersOf(headers = []) {
  const pairs = () => (Array.isArray(headers) ? headers : Object.entries(headers));
  const all = typeof /** @type {Partial<Headers>} */ (headers).get === 'function' ? /** @type {Headers} */ (headers) : new Map(pairs().map(([name, value]) => [name.toLowerCase(), value]));
  return HEADERS.flatMap((name) => (all.get(name) ?? null) === null ? [] : [[name, String(all.get(name))]]);
}
