// Lists the files of a version: the engine's and those of lists, with known hashes, and the page's own.

import { InvalidInput, SessionFailed } from '../common/errors.js';
import { platform } from '../common/platform.js';
import { HINT } from '../common/spawn.js';
import { NAMES, ownUrls } from '../page/engine/assets.js';
import { isUnchanged, validators } from '../storage/stored_models.js';

/** @import { OfflineFile, Wanted } from './versions.js' */
/**
 * Files by their paths relative to the list. page: whether pages use it.
 * @typedef {{ build?: string, files: Record<string, { size: number, hash: string, page?: boolean }> }} List
 */
/** A file before its download. hash: "" if unknown. @typedef {OfflineFile} Expected */

const LIST = 'assets.json';

/** The list beside this file. Bundlers rewrite this address. */
const ownList = () => platform.address(new URL('./assets.json', import.meta.url).href);

/** Whether this file is beside its list, as in dist/. In a bundle files may be elsewhere. */
const isUnbundled = () => new URL('offline.mjs', ownList()).href === import.meta.url;

/**
 * @param {Wanted} wanted @param {import('./versions.js').Versions} store @param {import('./versions.js').Version | undefined} newest
 * @returns {Promise<{ build: string, files: Expected[] }>}
 */
export async function expectedFiles({ engine, lists, files }, store, newest) {
  const [own, ...others] = await Promise.all([engine ? new URL(LIST, engine).href : ownList(), ...lists].map(read));
  const filesOf = (/** @type {{ url: string, list: List }} */ { url, list }) => (
    Object.entries(list.files).map(([name, file]) => at(addressIn(url, name), file)));
  const listed = [...engineFiles(own, engine), ...others.flatMap(filesOf)];
  const plain = await Promise.all(files.map((url) => plainFile(url, store, newest)));
  return { build: own.list.build ?? '', files: [...new Map([...plain, ...listed].map((file) => [file.url, file])).values()] };
}

/** @param {string} url @param {{ size: number, hash: string }} file @returns {Expected} */
const at = (url, { size, hash }) => ({ url, size, hash });

/** @param {string} list its address @param {string} name a path relative to it */
const addressIn = (list, name) => new URL(name.replace(/[?#]/g, encodeURIComponent), list).href;

/** @param {string} url @returns {Promise<{ url: string, list: List }>} */
async function read(url) {
  try {
    const response = await fetch(url, { cache: 'no-store' });
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    const list = await response.json();
    if (!(list?.files instanceof Object)) throw new Error('it is not a list of files');
    return { url, list };
  } catch (cause) {
    throw new SessionFailed(`cannot load ${url}: ${/** @type {Error} */ (cause).message}`, { hint: HINT, cause });
  }
}

/**
 * The files that pages use.
 * @param {{ url: string, list: List }} own @param {string} folder of the engine, "": this one @returns {Expected[]}
 */
function engineFiles({ url, list }, folder) {
  const used = Object.entries(list.files).filter(([, { page }]) => page);
  if (folder || isUnbundled()) return used.map(([name, file]) => at(addressIn(url, name), file));
  return Object.entries(ownUrls()).flatMap(([key, address]) => {
    const name = NAMES[/** @type {keyof typeof NAMES} */ (key)];
    return list.files[name] && !address.startsWith('data:') ? [at(address, list.files[name])] : [];
  });
}

/**
 * A file in no list: the stored one if the server still has the same.
 * @param {string} url @param {import('./versions.js').Versions} store @param {import('./versions.js').Version | undefined} newest
 * @returns {Promise<Expected>}
 */
async function plainFile(url, store, newest) {
  const stored = newest?.files.find((file) => file.url === url);
  if (stored && await isUnchanged(url, validators(await store.headers(stored)))) return stored;
  return { url, size: 0, hash: '' };
}

/**
 * The page's options, with absolute addresses.
 * @param {{ engine?: string, lists?: string[], files?: string[], models?: (string | { url: string, version?: string })[] }} options
 * @returns {Wanted}
 */
export function wantedOf({ engine = '', lists = [], files = [], models = [] }) {
  for (const [name, value] of Object.entries({ lists, files, models })) {
    if (!Array.isArray(value)) throw new InvalidInput(`${name} cannot be ${value}`, { hint: 'an array of addresses' });
  }
  const absolute = (/** @type {string} */ text) => platform.address(text).replace(/#.*/, '');
  return {
    engine: engine && absolute(engine.endsWith('/') ? engine : `${engine}/`),
    lists: lists.map(absolute),
    files: files.map(absolute),
    models: models.map((model) => {
      const { url, version = '' } = typeof model === 'string' ? { url: model } : model;
      return { url: absolute(url), version };
    }),
  };
}
