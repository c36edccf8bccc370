// Bytes of models and their external data, with progress.

import { InvalidModel } from '../common/errors.js';
import { readBody } from '../common/read_body.js';
import { fetchAndKeep } from '../storage/kept_models.js';

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
  const { url, keep } = origin;
  const get = async (/** @type {RequestInit} */ init) => {
    const response = await fetch(url, { signal, ...init });
    if (!response.ok) throw new InvalidModel(`cannot fetch ${url}: HTTP ${response.status} ${response.statusText}`.trimEnd(), { hint: 'check the address' });
    return response;
  };
  try {
    return keep ? (await fetchAndKeep(url, keep, progress, get)).bytes : await readBody(await get({}), progress);
  } catch (cause) {
    if (cause instanceof InvalidModel) throw cause;
    throw new InvalidModel(`cannot fetch ${url}: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}
