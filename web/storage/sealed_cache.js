// What pages keep in Cache Storage for later ones: an entry is sealed for its name, so that one that was damaged, or
// came to lie under the name of another model or version, counts as absent.

import { digest } from './digest.js';

/** Null where there is none: no secure context, or a page of no origin, where asking for it throws. @returns {CacheStorage | null} */
export function cacheStorage() {
  try {
    return globalThis.caches ?? null;
  } catch {
    return null;
  }
}

/** Holds for these bytes under this name alone. @param {string} name @param {Uint8Array} bytes not in shared memory */
export async function seal(name, bytes) {
  return digest(new TextEncoder().encode(`${name} ${await digest(bytes)}`));
}

/** @param {Response} found @param {string} name @returns {Promise<Uint8Array<ArrayBuffer> | null>} null: not as it was written */
export async function unseal(found, name) {
  const bytes = new Uint8Array(await found.arrayBuffer());
  return await seal(name, bytes) === found.headers.get('etag') ? bytes : null;
}

/** Keeps an entry; the oldest go, so that no more than `most` are there. @param {Cache} cache @param {string} name @param {Uint8Array<ArrayBuffer>} bytes @param {number} most */
export async function keep(cache, name, bytes, most) {
  await cache.put(name, new Response(bytes, { headers: { etag: await seal(name, bytes) } }));
  const names = await cache.keys();
  await Promise.all(names.slice(0, Math.max(0, names.length - most)).map((old) => cache.delete(old)));
}
