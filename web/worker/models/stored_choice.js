// Stores which provider was faster for a model on this device, for later visits.

import { digest } from '../../storage/digest.js';
import { CHOICES } from '../../storage/names.js';
import { cacheStorage, store, unseal } from '../../storage/sealed_cache.js';

/** @import { Description } from '../../gpu/types.js' */
/** @import { Source } from './types.js' */
/** best: milliseconds of a run on WebAssembly. @typedef {{ onGpu: boolean, best: number, why: string }} Choice */

const MOST = 64; // models of an origin
const VALID = 30 * 24 * 60 * 60 * 1000; // ms: then it is measured again, because drivers change, and it may have been disturbed

const [encoder, decoder] = [new TextEncoder(), new TextDecoder()];

/**
 * The name of a choice: it depends on the model, the options, the adapter and the version of the browser.
 * @param {Pick<Source, 'cache' | 'files'>} source of the session on WebAssembly @param {Description} adapter @param {number} [pause]
 */
async function nameOf({ cache, files }, adapter, pause) {
  const device = await digest(encoder.encode(JSON.stringify([adapter, navigator.userAgent])));
  return cache && `${await cache.name(files, pause)}&choice=${device}`;
}

/** @param {Pick<Source, 'cache' | 'files'>} source @param {Description} adapter @returns {Promise<Choice | null>} */
export async function readChoice(source, adapter) {
  try {
    if (!cacheStorage() || !source.cache) return null;
    const cache = await caches.open(CHOICES);
    const prefix = await source.cache.prefix;
    if (!(await cache.keys()).some(({ url }) => url.startsWith(prefix))) return null; // before hashing the model
    const name = /** @type {string} */ (await nameOf(source, adapter));
    const found = await cache.match(name);
    const bytes = found && await unseal(found, name);
    const { at, ...choice } = bytes ? JSON.parse(decoder.decode(bytes)) : { at: 0 };
    return Date.now() - at < VALID ? choice : null;
  } catch {
    return null; // storage is forbidden, or the model is in shared memory, which cannot be hashed
  }
}

/** @param {Pick<Source, 'cache' | 'files'>} source @param {Description} adapter @param {Choice} choice */
export async function storeChoice(source, adapter, { onGpu, best, why }) {
  try {
    const name = cacheStorage() && await nameOf(source, adapter, 50);
    if (name) await store(await caches.open(CHOICES), name, encoder.encode(JSON.stringify({ at: Date.now(), onGpu, best, why })), MOST);
  } catch {
    // storage is forbidden or full, or the model is in shared memory: the next visit measures again
  }
}
