// The interpreter's memory after its start, kept in the browser's cache: the next page restores it (ADR 15).

import { warn } from '../common/log.js';
import { BUILD } from './build.js';
import { cacheStorage, keep, unseal } from '../storage/sealed_cache.js';

/** @typedef {import('pyodide').PyodideAPI} PyodideAPI */

const CACHE = 'pyruntime';
const PAGE = 4096;
/** Snapshots kept on an origin, the newest: two pages may have two versions of the engine. */
const MOST = 2;
/** Milliseconds until it is written: not while the first session starts. */
export const WRITE_DELAY = 2000;

/**
 * The name it is kept under, or null where nothing can be kept. The browser's version is in it, for what memory says
 * of the browser's WebAssembly must hold.
 * @param {string} engine address of the engine
 */
function nameOf(engine) {
  if (!BUILD || !cacheStorage()) return null;
  const name = new URL(engine);
  name.search = new URLSearchParams({ snapshot: BUILD, agent: navigator.userAgent }).toString();
  name.hash = '';
  return name.href;
}

/**
 * What reads the snapshot of an earlier page, or null: Pyodide has to know early whether there is one.
 * @param {string} engine address of the engine
 * @returns {Promise<(() => Promise<Uint8Array>) | null>}
 */
export async function findSnapshot(engine) {
  const name = nameOf(engine);
  try {
    const found = name && await (await caches.open(CACHE)).match(name);
    return name && found ? () => read(found, name) : null;
  } catch {
    return null; // storage is forbidden here
  }
}

/** Memory that is not as it was written must not be restored. @param {Response} found @param {string} name */
async function read(found, name) {
  const packed = await unseal(found, name);
  if (!packed) throw new Error('the snapshot is damaged');
  return unpack(packed);
}

/** A snapshot that could not be restored. @param {string} engine address of the engine */
export async function removeSnapshot(engine) {
  const name = nameOf(engine);
  if (name) await (await caches.open(CACHE)).delete(name);
}

/**
 * Keeps the memory as it is now, for later pages. Pyodide must have been started without objects of the page in it.
 * @param {PyodideAPI} pyodide @param {string} engine address of the engine
 */
export function saveSnapshot(pyodide, engine) {
  const name = nameOf(engine);
  if (!name) return;
  try {
    // Set only here: an interpreter started with it has a recording proxy for globalThis in the place of the module `js`.
    /** @type {any} */ (pyodide)._api.config._makeSnapshot = true;
    const memory = /** @type {any} */ (pyodide).makeMemorySnapshot();
    setTimeout(() => write(name, pack(memory)).catch(() => {}), WRITE_DELAY); // no room, or forbidden: the next start is as this one
  } catch (error) {
    warn(`no snapshot was kept, so the next start takes as long as this one: ${error}`);
  }
}

/** @param {string} name @param {Uint8Array<ArrayBuffer>} packed */
async function write(name, packed) {
  await keep(await caches.open(CACHE), name, packed, MOST);
}

// ── pages of zeros, half of the memory, are left out: [whole length, number of pages, page numbers …] as u32, the pages ──

/** @param {Uint8Array} bytes @returns {Uint8Array<ArrayBuffer>} */
export function pack(bytes) {
  const words = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2);
  const count = Math.ceil(bytes.length / PAGE);
  const used = [...Array(count).keys()].filter((page) => page === count - 1 || hasData(words, page));
  const head = Uint32Array.of(bytes.length, used.length, ...used);
  const packed = new Uint8Array(head.byteLength + used.length * PAGE);
  packed.set(new Uint8Array(head.buffer));
  used.forEach((page, i) => packed.set(bytes.subarray(page * PAGE, (page + 1) * PAGE), head.byteLength + i * PAGE));
  return packed;
}

/** @param {Int32Array} words @param {number} page */
function hasData(words, page) {
  const end = (page + 1) * (PAGE >> 2);
  for (let i = page * (PAGE >> 2); i < end; i++) if (words[i]) return true;
  return false;
}

/** @param {Uint8Array<ArrayBuffer>} packed @returns {Uint8Array} */
export function unpack(packed) {
  const [length, count] = new Uint32Array(packed.buffer, 0, 2);
  const pages = new Uint32Array(packed.buffer, 8, count);
  const start = 8 + 4 * count;
  if (packed.length !== start + count * PAGE) throw new Error('the snapshot is not whole');
  const bytes = new Uint8Array(length);
  for (let i = 0; i < count; i++) {
    const from = start + i * PAGE;
    const room = Math.min(PAGE, length - pages[i] * PAGE);
    bytes.set(packed.subarray(from, from + room), pages[i] * PAGE);
  }
  return bytes;
}
