// Models, and their files, that pages asked to keep: in Cache Storage under their addresses, sealed like all that is
// kept. A page lists and deletes them; the browser may evict them.

import { warn } from '../common/log.js';
import { readBody } from '../common/read_body.js';
import { checkQuota, withinQuota } from './quota.js';
import { cacheStorage, seal, unseal } from './sealed_cache.js';

/** version: given by the page, "" where it asks the server; etag, modified: what the server tells of its file. */
/** @typedef {{ version: string, size: number, kept: number, etag: string, modified: string }} Notes kept: milliseconds since 1970 */
/** @typedef {boolean | string} Keep true: as long as the server has no other; a text: as long as the page asks for this version */
/** @typedef {{ url: string, version: string, size: number, kept: number }} KeptModel size: bytes */

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

/** What the server tells of a file, by which another one is known. @param {Headers} headers */
export const validators = (headers) => ({ etag: headers.get('etag') ?? '', modified: headers.get('last-modified') ?? '' });

/** Whether the server has still this one; what cannot be asked counts as that. @param {string} url @param {{ etag: string, modified: string }} kept */
export async function unchanged(url, kept) {
  try {
    const answer = await fetch(url, { method: 'HEAD', cache: 'no-store' });
    if (!answer.ok) return false;
    const { etag, modified } = validators(answer.headers);
    return etag || kept.etag ? etag === kept.etag : Boolean(modified) && modified === kept.modified;
  } catch {
    return true; // offline
  }
}

/**
 * The bytes that are kept, if they are what is asked for; damaged ones go.
 * @param {string} url @param {Keep} keep @returns {Promise<{ bytes: Uint8Array<ArrayBuffer> | null, other: boolean }>} other: whether another one is kept
 */
async function find(url, keep) {
  const found = await (await open()).match(withoutHash(url));
  if (!found) return { bytes: null, other: false };
  const notes = notesOf(found);
  const valid = typeof keep === 'string' ? notes.version === keep : await unchanged(url, notes);
  return { bytes: valid ? await readStored(url) : null, other: !valid };
}

/** Those kept under this address, whatever the version. @param {string} url @returns {Promise<Uint8Array<ArrayBuffer> | null>} */
export async function readStored(url) {
  const cache = await open();
  const name = withoutHash(url);
  const found = await cache.match(name);
  const bytes = found && await unseal(found, name);
  if (found && !bytes) await cache.delete(name);
  return bytes ?? null;
}

/**
 * A file that is kept, or else fetched and then kept. Where it cannot be kept, `failed` is told why.
 * @param {string} url @param {Keep} keep @param {import('../common/read_body.js').OnBytes} progress
 * @param {(init: RequestInit) => Promise<Response>} get asks for it; throws where it cannot be had
 * @param {(error: Error) => void} [failed]
 * @returns {Promise<{ bytes: Uint8Array<ArrayBuffer>, written: Promise<void> }>}
 */
export async function fetchAndStore(url, keep, progress, get, failed = ({ message }) => warn(`${url} is not kept: ${message}`)) {
  const found = await find(url, keep).catch(() => ({ bytes: null, other: false }));
  if (found.bytes) {
    progress(found.bytes.length, found.bytes.length);
    return { bytes: found.bytes, written: Promise.resolve() };
  }
  const response = await get({ cache: found.other ? 'no-store' : 'no-cache' }); // past a service worker that has the other one
  const bytes = await readBody(response, progress);
  return { bytes, written: write(url, keep, bytes, response.headers).catch(failed) };
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

/** The models and files of models that this origin keeps, the oldest first. @returns {Promise<KeptModel[]>} */
export async function listModels() {
  if (!cacheStorage()) return [];
  const cache = await open();
  const found = await cache.matchAll();
  const names = await cache.keys();
  return names.map(({ url }, i) => {
    const { version = '', size = 0, kept = 0 } = notesOf(found[i]);
    return { url, version, size, kept };
  });
}

/** Whether there was one. @param {string} url a whole address @returns {Promise<boolean>} */
export const deleteModel = async (url) => cacheStorage() !== null && (await open()).delete(withoutHash(url));
