// Which files a version has: of the engine and of lists, whose hashes are known, and of the page itself.

import { InvalidInput, SessionFailed } from '../common/errors.js';
import { platform } from '../common/platform.js';
import { HINT, NAMES, ownUrls } from '../page/engine/assets.js';
import { unchanged, validators } from '../storage/stored_models.js';

/** @typedef {import('./versions.js').OfflineFile} OfflineFile */
/** @typedef {import('./versions.js').Wanted} Wanted */
/** A list of files, by their paths from there; page: whether pages use it. @typedef {{ build?: string, files: Record<string, { size: number, hash: string, page?: boolean }> }} List */
/** A file before it is fetched: hash "" where nobody tells. @typedef {OfflineFile} Expected */

const LIST = 'assets.json';

/** Of the files beside this one. A bundler puts the address here that it gives the list. */
const ownList = () => new URL('./assets.json', import.meta.url).href;

/** Whether this file lies beside its list, as in dist/; in a bundle each file is where the bundler put it. */
const unbundled = () => new URL('offline.mjs', ownList()).href === import.meta.url;

/** @param {Wanted} wanted @param {import('./versions.js').Versions} store @param {import('./versions.js').Version | undefined} newest @returns {Promise<{ build: string, files: Expected[] }>} */
export async function expectedFiles({ engine, lists, files }, store, newest) {
  const [own, ...others] = await Promise.all([engine ? new URL(LIST, engine).href : ownList(), ...lists].map(read));
  const listed = [...engineFiles(own, engine), ...others.flatMap(({ url, list }) => Object.entries(list.files).map(([name, file]) => at(addressIn(url, name), file)))];
  const plain = await Promise.all(files.map((url) => plainFile(url, store, newest)));
  return { build: own.list.build ?? '', files: [...new Map([...plain, ...listed].map((file) => [file.url, file])).values()] };
}

/** @param {string} url @param {{ size: number, hash: string }} file @returns {Expected} */
const at = (url, { size, hash }) => ({ url, size, hash });

/** @param {string} list its address @param {string} name a path from there */
const addressIn = (list, name) => new URL(name.replace(/[?#]/g, encodeURIComponent), list).href;

/** @param {string} url @returns {Promise<{ url: string, list: List }>} */
async function read(url) {
  try {
    const response = await fetch(url, { cache: 'no-store' });
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    const list = await response.json();
    if (!(list?.files instanceof Object)) throw new Error('it is no list of files');
    return { url, list };
  } catch (cause) {
    throw new SessionFailed(`cannot load ${url}: ${/** @type {Error} */ (cause).message}`, { hint: HINT, cause });
  }
}

/** Those that pages use. @param {{ url: string, list: List }} own @param {string} folder of the engine, "" the own one @returns {Expected[]} */
function engineFiles({ url, list }, folder) {
  const used = Object.entries(list.files).filter(([, { page }]) => page);
  if (folder || unbundled()) return used.map(([name, file]) => at(addressIn(url, name), file));
  return Object.entries(ownUrls()).flatMap(([key, address]) => {
    const name = NAMES[/** @type {keyof typeof NAMES} */ (key)];
    return list.files[name] ? [at(address, list.files[name])] : [];
  });
}

/** One that no list tells of is the kept one, if the server still has that. @param {string} url @param {import('./versions.js').Versions} store @param {import('./versions.js').Version | undefined} newest @returns {Promise<Expected>} */
async function plainFile(url, store, newest) {
  const kept = newest?.files.find((file) => file.url === url);
  if (kept && await unchanged(url, validators(await store.headers(kept)))) return kept;
  return { url, size: 0, hash: '' };
}

/** What a page asks for, with whole addresses. @param {Record<string, any>} options @returns {Wanted} */
export function wantedOf({ engine = '', lists = [], files = [], models = [] }) {
  for (const [name, value] of Object.entries({ lists, files, models })) {
    if (!Array.isArray(value)) throw new InvalidInput(`${name} cannot be ${value}`, { hint: 'an array of addresses' });
  }
  const whole = (/** @type {string} */ text) => platform.address(text).replace(/#.*/, '');
  return {
    engine: engine && whole(engine.endsWith('/') ? engine : `${engine}/`),
    lists: lists.map(whole),
    files: files.map(whole),
    models: models.map((/** @type {string | { url: string, version?: string }} */ model) => (typeof model === 'string' ? { url: whole(model), version: '' } : { url: whole(model.url), version: model.version ?? '' })),
  };
}
