// Entries of Cache Storage with a seal, a hash of name and bytes: an entry that is damaged, or stored under the name of
// another model or version, counts as absent.

import { digest } from './digest.js';

/** Null without a secure context, or on a page with an opaque origin, where the access throws. @returns {CacheStorage | null} */
export function cacheStorage() {
  try {
    return globalThis.caches ?? null;
  } catch {
    return null;
  }
}

/** The seal of these bytes under this name. @param {string} name @param {Uint8Array} bytes not in shared memory */
export async function seal(name, bytes) {
  return digest(new TextEncoder().encode(`${name} ${await digest(bytes)}`));
}

/**
 * The bytes of an entry, null if the seal does not match.
 * @param {Response} found @param {string} name @returns {Promise<Uint8Array<ArrayBuffer> | null>}
 */
export async function unseal(found, name) {
  const bytes = new Uint8Array(await found.arrayBuffer());
  return await seal(name, bytes) === found.headers.get('etag') ? bytes : null;
}

/**
 * Stores an entry and deletes the oldest beyond `most`.
 * @param {Cache} cache @param {string} name @param {Uint8Array<ArrayBuffer>} bytes @param {number} most
 */
export async function store(cache, name, bytes, most) {
  await cache.put(name, new Response(bytes, { headers: { etag: await seal(name, bytes) } }));
  const names = await cache.keys();
  await Promise.all(names.slice(0, Math.max(0, names.length - most)).map((old) => cache.delete(old)));
}
