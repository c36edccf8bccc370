/**
 * Hashes, cached because a model's hash is needed twice and takes a millisecond per MB.
 * @type {WeakMap<Uint8Array, Promise<string>>}
 */
const cache = new WeakMap();

/** SHA-256 in hexadecimal, cached. @param {Uint8Array} bytes not in shared memory, never changed later */
export function digest(bytes) {
  let found = cache.get(bytes);
  if (!found) cache.set(bytes, found = sha256(bytes));
  return found;
}

/** The same for bytes that may change later. @param {Uint8Array} bytes */
export async function sha256(bytes) {
  const hash = await crypto.subtle.digest('SHA-256', /** @type {Uint8Array<ArrayBuffer>} */ (bytes));
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
