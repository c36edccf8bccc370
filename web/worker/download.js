// Bytes of models and their external data, with progress.

import { InvalidModel } from '../common/errors.js';

/** @typedef {import('../common/protocol.js').Origin} Origin */

/**
 * @param {Origin} origin
 * @param {(loaded: number, total: number) => void} progress total 0 where the server does not tell
 * @param {AbortSignal} [signal] that it is wanted no more
 * @returns {Promise<Uint8Array>}
 */
export async function fetchBytes(origin, progress, signal) {
  if ('bytes' in origin) return origin.bytes;
  if ('blob' in origin) return new Uint8Array(await origin.blob.arrayBuffer());
  const { url } = origin;
  try {
    const response = await fetch(url, { signal });
    if (!response.ok) throw new InvalidModel(`cannot fetch ${url}: HTTP ${response.status} ${response.statusText}`.trimEnd(), { hint: 'check the address' });
    return await body(response, progress);
  } catch (cause) {
    if (cause instanceof InvalidModel) throw cause;
    throw new InvalidModel(`cannot fetch ${url}: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}

/** @param {Response} response @param {(loaded: number, total: number) => void} progress */
async function body(response, progress) {
  if (!response.body) return new Uint8Array(await response.arrayBuffer());
  const encoded = response.headers.get('content-encoding');
  const total = encoded ? 0 : Number(response.headers.get('content-length') ?? 0);
  return collect(response.body.getReader(), total, throttle(progress));
}

/**
 * Into one buffer of the announced size; a wrong announcement only costs a copy.
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader
 * @param {number} total
 * @param {(loaded: number, total: number) => void} progress
 */
async function collect(reader, total, progress) {
  let bytes = new Uint8Array(total || 1 << 16);
  let loaded = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (loaded + value.length > bytes.length) {
      const larger = new Uint8Array(Math.max(loaded + value.length, bytes.length * 2));
      larger.set(bytes.subarray(0, loaded));
      bytes = larger;
    }
    bytes.set(value, loaded);
    loaded += value.length;
    progress(loaded, total);
  }
  progress(loaded, loaded);
  return bytes.subarray(0, loaded);
}

/**
 * At most some thirty calls a second, and always the last one.
 * @param {(loaded: number, total: number) => void} progress
 * @returns {(loaded: number, total: number) => void}
 */
function throttle(progress) {
  let last = 0;
  return (loaded, total) => {
    const now = performance.now();
    if (now - last < 33 && loaded !== total) return;
    last = now;
    progress(loaded, total);
  };
}
