// Addresses of the engine's files. Bundlers recognise `new URL('./name', import.meta.url)`: they copy the file and insert its final
// address. The builds for <script> and require() replace import.meta.url by the script's own address (scripts/build_web.mjs).
// docs/design/platforms.md#files-and-bundlers lists what bundlers insert.

import { InvalidInput, setErrorPages } from '../../common/errors.js';
import { warn } from '../../common/log.js';
import { platform } from '../../common/platform.js';
import { mapValues } from '../../common/records.js';
import { scriptUrl } from '../../common/spawn.js';

/**
 * @typedef {{ worker: string, asm: string, wasm: string, rest: string, image: string, stdlib: string, stdlibRest: string,
 *   engine: string, executor: string, training: string, pictures: string, errors: string }} AssetUrls
 */

/** Names in dist/. @type {Record<keyof AssetUrls, string>} */
export const NAMES = {
  worker: 'worker.mjs', asm: 'pyodide.asm.mjs', wasm: 'pyodide.asm.wasm', rest: 'pyodide.rest.wasm', image: 'python.image.wasm',
  stdlib: 'python_stdlib.zip', stdlibRest: 'python_rest.zip', engine: 'engine.zip', executor: 'executor.mjs',
  training: 'training.mjs', pictures: 'pictures.mjs', errors: 'errors.html',
};

/** Addresses as a bundler inserts them. */
const inserted = {
  scripts: () => ({
    worker: new URL('./worker.mjs', import.meta.url),
    asm: new URL('./pyodide.asm.mjs', import.meta.url),
    executor: new URL('./executor.mjs', import.meta.url),
    training: new URL('./training.mjs', import.meta.url),
    pictures: new URL('./pictures.mjs', import.meta.url),
  }),

  /**
   * Copies of the scripts with another ending, for projects with a rule of webpack that compiles all .mjs files, also those that are
   * named by address.
   */
  copies: () => ({
    worker: new URL('./worker.bin', import.meta.url),
    asm: new URL('./pyodide.asm.bin', import.meta.url),
    executor: new URL('./executor.bin', import.meta.url),
    training: new URL('./training.bin', import.meta.url),
    pictures: new URL('./pictures.bin', import.meta.url),
  }),

  others: () => ({
    wasm: new URL('./pyodide.asm.wasm', import.meta.url),
    rest: new URL('./pyodide.rest.wasm', import.meta.url),
    image: new URL('./python.image.wasm', import.meta.url),
    stdlib: new URL('./python_stdlib.zip', import.meta.url),
    stdlibRest: new URL('./python_rest.zip', import.meta.url),
    engine: new URL('./engine.zip', import.meta.url),
    errors: new URL('./errors.html', import.meta.url),
  }),
};

/** The files in a folder. @param {string} folder @returns {AssetUrls} */
function urlsIn(folder) {
  const base = addressOf(folder.endsWith('/') ? folder : `${folder}/`);
  return /** @type {AssetUrls} */ (mapValues(NAMES, (name) => new URL(name, base).href));
}

/**
 * An absolute address. Relative ones refer to the page as other addresses in it do, in workers from blob: addresses to its origin.
 * @param {string} text
 */
const addressOf = (text) => platform.address(text, /^(blob|data):/.test(globalThis.location?.href) ? globalThis.origin : undefined);

/**
 * Whether an address belongs to onnxruntime-web or transformers.js on a CDN, which lacks our files and is not asked. A folder of the
 * page's own server may have such a name, but no version.
 * @param {string} text
 */
function isForeign(text) {
  const { origin, pathname } = new URL(addressOf(text));
  return /\/(?:onnxruntime-web|transformers)@\d/.test(pathname) || origin !== globalThis.origin && /\/(?:onnxruntime-web|transformers)[@/]/.test(pathname);
}

/**
 * Addresses of all files. `paths` (env.wasm.wasmPaths) is a folder, or an object with the addresses `mjs` of worker.mjs and `wasm` of
 * pyodide.asm.wasm. Programs for onnxruntime-web name its files there: such paths are ignored, with a warning.
 * @param {unknown} paths
 * @returns {Promise<AssetUrls>}
 */
export async function assetUrls(paths) {
  const urls = await chosenUrls(paths);
  setErrorPages(() => urls.errors);
  return { ...urls, worker: await scriptUrl(urls.worker) };
}

/** @param {unknown} paths */
async function chosenUrls(paths) {
  const folder = typeof paths === 'string' && paths;
  if (folder && !isForeign(folder)) {
    const urls = urlsIn(folder);
    if (await platform.exists(urls.worker)) return urls;
  }
  const own = ownUrls();
  if (folder) warnIgnored(folder, own);
  else if (typeof paths === 'object' && paths) {
    const { mjs, wasm, ...others } = /** @type {{ mjs?: unknown, wasm?: unknown }} */ (paths);
    for (const name of Object.keys(others)) warn(`env.wasm.wasmPaths has no entry "${name}": it has mjs and wasm`);
    for (const [key, url] of /** @type {['worker' | 'wasm', unknown][]} */ ([['worker', mjs], ['wasm', wasm]])) {
      if (!url) continue;
      const address = addressOf(String(url));
      if (new URL(address).pathname.endsWith(`/${NAMES[key]}`)) own[key] = address;
      else warnIgnored(String(url), own);
    }
  }
  else if (paths !== undefined && paths !== null) throw new InvalidInput(`env.wasm.wasmPaths cannot be ${paths}`, { hint: 'a folder, or { mjs, wasm }' });
  return own;
}

/** What a module that a bundler compiled becomes as a text. */
const COMPILED = /\[object\b/;

/** Development servers of Vite up to 7 bundle packages into this folder, without their files. */
const PREBUNDLED = /\/node_modules\/\.vite\/deps\w*\//;

/**
 * The files of this build: whole addresses of what the bundler inserted. Throws in esbuild's bundles that are no modules: they do not
 * know their own address.
 * @param {Record<keyof typeof inserted, () => Record<string, unknown>>} urls
 */
export function ownUrls({ scripts, copies, others } = inserted) {
  const read = (/** @type {() => Record<string, unknown>} */ get) => {
    const found = mapValues(get(), String);
    for (const [name, url] of Object.entries(found)) {
      if (!COMPILED.test(url)) continue;
      const hint = 'exclude this package from that rule, or copy dist/ and let env.wasm.wasmPaths name the folder';
      throw new InvalidInput(`a rule of the bundler compiled ${NAMES[/** @type {keyof AssetUrls} */ (name)]} instead of copying it`, { hint });
    }
    return mapValues(found, (url) => addressOf(url).replace(PREBUNDLED, '/node_modules/pyruntime/dist/'));
  };
  try {
    return /** @type {AssetUrls} */ ({ ...attempt(() => read(scripts)) ?? read(copies), ...read(others) });
  } catch (error) {
    throw error instanceof InvalidInput ? error : new InvalidInput("env.wasm.wasmPaths must name the engine's folder");
  }
}

/** The result, or null if it throws. @template T @param {() => T} get */
function attempt(get) {
  try {
    return get();
  } catch {
    return null;
  }
}

/** @param {string} path @param {AssetUrls} own */
function warnIgnored(path, own) {
  warn(`env.wasm.wasmPaths names ${path}, not this package's files: using ${own.worker}`);
}

setErrorPages(() => attempt(() => ownUrls().errors) ?? '');
