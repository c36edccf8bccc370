// Models and their files that pages store by the option `cache`: in Cache Storage under their addresses, each with a seal.
// Pages list and delete them; the browser may evict them.

import { warn } from '../common/log.js';
import { readBody } from '../common/read_body.js';
import { checkQuota, withinQuota } from './quota.js';
import { cacheStorage, seal, unseal } from './sealed_cache.js';

/**
 * version: the page's, "" if the server decides; etag, modified: headers of the server; kept: milliseconds since 1970.
 * @typedef {{ version: string, size: number, kept: number, etag: string, modified: string }} Notes
 */
/** true: valid until the server has another file; a text: valid for this version only. @typedef {boolean | string} Keep */
/** size: bytes. @typedef {{ url: string, version: string, size: number, kept: number }} KeptModel */

const CACHE = 'pyruntime-models';
const NOTES = 'pyruntime-notes';

const open = () => {
  const storage = cacheStorage();
  if (!storage) throw new DOMException('this page has no Cache Storage', 'SecurityError');
  return storage.open(CACHE);
};

/** @param {string} url */
export const withoutHash = (url) => url.replace(/#.*/, '');

/** @param {Response} found @returns {Notes} */
const notesOf = (found) => JSON.parse(decodeURIComponent(found.headers.get(NOTES) ?? '%7B%7D'));

/** Returns the headers that change with a file. @param {Headers} headers */
export const validators = (headers) => ({ etag: headers.get('etag') ?? '', modified: headers.get('last-modified') ?? '' });

/**
 * Whether the server still has the same file. True if the server cannot be reached.
 * @param {string} url @param {{ etag: string, modified: string }} stored
 * @param {import('../common/protocol.js').FetchFile} [fetch]
 */
export async function isUnchanged(url, stored, fetch = globalThis.fetch) {
  try {
    const response = await fetch(url, { method: 'HEAD', cache: 'no-store' });
    if (!response.ok) return false;
    const { etag, modified } = validators(response.headers);
    return etag || stored.etag ? etag === stored.etag : Boolean(modified) && modified === stored.modified;
  } catch {
    return true; // offline
  }
}

/**
 * The stored bytes if they are valid. Deletes damaged ones. other: whether another version is stored.
 * @param {string} url @param {Keep} keep @param {import('../common/protocol.js').FetchFile} [fetch]
 * @returns {Promise<{ bytes: Uint8Array<ArrayBuffer> | null, other: boolean }>}
 */
async function find(url, keep, fetch) {
  const found = await (await open()).match(withoutHash(url));
  if (!found) return { bytes: null, other: false };
  const notes = notesOf(found);
  const valid = typeof keep === 'string' ? notes.version === keep : await isUnchanged(url, notes, fetch);
  return { bytes: valid ? await readStored(url) : null, other: !valid };
}

/** The stored bytes of any version. @param {string} url @returns {Promise<Uint8Array<ArrayBuffer> | null>} */
export async function readStored(url) {
  const cache = await open();
  const name = withoutHash(url);
  const found = await cache.match(name);
  const bytes = found && await unseal(found, name);
  if (found && !bytes) await cache.delete(name);
  return bytes ?? null;
}

/**
 * A stored file; if there is none, fetches and stores it. `failed` is called with the error if the file cannot be
 * stored.
 * @param {string} url @param {Keep} keep @param {import('../common/read_body.js').OnBytes} progress
 * @param {(init: RequestInit) => Promise<Response>} get fetches it or throws
 * @param {(error: Error) => void} [failed] @param {import('../common/protocol.js').FetchFile} [fetch]
 * @returns {Promise<{ bytes: Uint8Array<ArrayBuffer>, written: Promise<void> }>}
 */
export async function fetchAndStore(url, keep, progress, get, failed = ({ message }) => warn(`cannot store ${url}: ${message}`), fetch = undefined) {
  const found = await find(url, keep, fetch).catch(() => ({ bytes: null, other: false }));
  if (found.bytes) {
    progress(found.bytes.length, found.bytes.length);
    return { bytes: found.bytes, written: Promise.resolve() };
  }
  // 'no-store' bypasses a service worker that has the other version.
  const response = await get({ cache: found.other ? 'no-store' : 'no-cache' });
  const bytes = await readBody(response, progress);
  return { bytes, written: write(url, keep, bytes, response.headers).catch(failed) };
}

/** The bytes of a stored file, if the server has not changed it; nothing checks whether they are damaged. @param {string} url absolute */
export async function storedBody(url) {
  const found = cacheStorage() && await (await open()).match(withoutHash(url));
  if (!found) return null;
  const notes = notesOf(found);
  return notes.version || await isUnchanged(url, notes) ? found.body : null;
}

/** @param {string} url @param {Keep} keep @param {Uint8Array<ArrayBuffer>} bytes @param {Headers} headers */
async function write(url, keep, bytes, headers) {
  const cache = await open();
  const name = withoutHash(url);
  await checkQuota(url, bytes.length);
  /** @type {Notes} */
  const notes = { version: typeof keep === 'string' ? keep : '', size: bytes.length, kept: Date.now(), ...validators(headers) };
  const body = new Response(bytes, { headers: { etag: await seal(name, bytes), [NOTES]: encodeURIComponent(JSON.stringify(notes)) } });
  await withinQuota(url, bytes.length, () => cache.put(name, body));
}

/** The models and their files that this origin stores, oldest first. @returns {Promise<KeptModel[]>} */
export async function listModels() {
  if (!cacheStorage()) return [];
  const cache = await open();
  const requests = await cache.keys();
  const found = await Promise.all(requests.map(async (request) => ({ url: request.url, response: await cache.match(request) })));
  return found.flatMap(({ url, response }) => {
    if (!response) return []; // deleted meanwhile
    const { version = '', size = 0, kept = 0 } = notesOf(response);
    return [{ url, version, size, kept }];
  });
}

/** Returns whether it was stored. @param {string} url absolute @returns {Promise<boolean>} */
export const deleteModel = async (url) => cacheStorage() !== null && (await open()).delete(withoutHash(url));
