// Downloads of models by a `fetch` in the page (web/page/engine/page_fetch.js).

/** @import { CreateParams } from '../../common/protocol.js' */
/** @typedef {{ resolve: (response: Response) => void, reject: (error: Error) => void }} Waiting */

/**
 * Lets all addresses of a call be fetched by the page if the call has a port for that. Returns a function that closes the port.
 * @param {CreateParams} params
 */
export function usePageFetch({ fetchPort, model, external }) {
  if (!fetchPort) return () => {};
  const fetch = pageFetch(fetchPort);
  for (const origin of [model, ...external.map((file) => file.origin)]) if ('url' in origin) origin.fetch = fetch;
  return () => fetchPort.close();
}

/** @param {MessagePort} port @returns {(url: string, init?: RequestInit) => Promise<Response>} */
export function pageFetch(port) {
  /** @type {Map<number, Waiting>} */
  const waiting = new Map();
  let next = 1;
  port.onmessage = ({ data: { id, error, body, type, ...head } }) => {
    const { resolve, reject } = /** @type {Waiting} */ (waiting.get(id));
    waiting.delete(id);
    try {
      if (error) throw new TypeError(error);
      resolve(Object.defineProperty(new Response(body, head), 'type', { value: type }));
    } catch (cause) {
      reject(/** @type {Error} */ (cause));
    }
  };
  return (url, { signal, ...init } = {}) => new Promise((resolve, reject) => {
    const id = next++;
    waiting.set(id, { resolve, reject });
    signal?.addEventListener('abort', () => {
      port.postMessage({ id });
      reject(signal.reason);
    }, { once: true });
    port.postMessage({ id, url, init });
  });
}
