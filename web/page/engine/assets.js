// Addresses of the engine's files. Bundlers recognise `new URL('./name', import.meta.url)`: they copy the file and insert its final
// address. The builds for <script> and require() replace import.meta.url by the script's own address (scripts/build_web.mjs).

import { InvalidInput } from '../../common/errors.js';
import { warn } from '../../common/log.js';
import { platform } from '../../common/platform.js';
import { mapValues } from '../../common/records.js';

/**
 * @typedef {{ worker: string, asm: string, wasm: string, rest: string, image: string, stdlib: string, stdlibRest: string,
 *   engine: string, executor: string }} AssetUrls
 */

/** Names in dist/. @type {Record<keyof AssetUrls, string>} */
export const NAMES = {
  worker: 'worker.mjs', asm: 'pyodide.asm.mjs', wasm: 'pyodide.asm.wasm', rest: 'pyodide.rest.wasm', image: 'python.image.wasm',
  stdlib: 'python_stdlib.zip', stdlibRest: 'python_rest.zip', engine: 'engine.zip', executor: 'executor.mjs',
};

/** Hint of errors: what the server must do. */
export const HINT = 'serve all files of dist/ unchanged, from one folder';

/** The files of this build. @returns {AssetUrls} */
export function ownUrls() {
  return {
    worker: new URL('./worker.mjs', import.meta.url).href,
    asm: new URL('./pyodide.asm.mjs', import.meta.url).href,
    wasm: new URL('./pyodide.asm.wasm', import.meta.url).href,
    rest: new URL('./pyodide.rest.wasm', import.meta.url).href,
    image: new URL('./python.image.wasm', import.meta.url).href,
    stdlib: new URL('./python_stdlib.zip', import.meta.url).href,
    stdlibRest: new URL('./python_rest.zip', import.meta.url).href,
    engine: new URL('./engine.zip', import.meta.url).href,
    executor: new URL('./executor.mjs', import.meta.url).href,
  };
}

/** The files in a folder. @param {string} folder @returns {AssetUrls} */
function urlsIn(folder) {
  const base = addressOf(folder.endsWith('/') ? folder : `${folder}/`);
  return /** @type {AssetUrls} */ (mapValues(NAMES, (name) => new URL(name, base).href));
}

/** @param {string} text */
const addressOf = (text) => platform.address(text, globalThis.location?.href);

/** Whether an address belongs to onnxruntime-web or transformers.js on a CDN, which lacks our files. @param {string} text */
const isForeign = (text) => /\/(?:onnxruntime-web|transformers)@\d/.test(new URL(addressOf(text)).pathname);

/**
 * Addresses of all files. `paths` (env.wasm.wasmPaths) is a folder, or an object with the addresses `mjs` of worker.mjs and `wasm` of
 * pyodide.asm.wasm. Programs for onnxruntime-web name its files there: such paths are ignored, with a warning.
 * @param {unknown} paths
 * @returns {Promise<AssetUrls>}
 */
export async function assetUrls(paths) {
  const folder = typeof paths === 'string' && paths;
  if (folder && !isForeign(folder)) {
    const urls = urlsIn(folder);
    if (await platform.exists(urls.worker)) return urls;
  }
  const own = builtUrls();
  if (folder) warnIgnored(folder, own);
  else if (typeof paths === 'object' && paths) {
    const { mjs, wasm } = /** @type {{ mjs?: unknown, wasm?: unknown }} */ (paths);
    for (const [key, url] of /** @type {['worker' | 'wasm', unknown][]} */ ([['worker', mjs], ['wasm', wasm]])) {
      if (!url) continue;
      const address = addressOf(String(url));
      if (new URL(address).pathname.endsWith(`/${NAMES[key]}`)) own[key] = address;
      else warnIgnored(String(url), own);
    }
  }
  return own;
}

/** Throws in esbuild's bundles that are no modules: they do not know their own address. */
function builtUrls() {
  try {
    return ownUrls();
  } catch {
    throw new InvalidInput("env.wasm.wasmPaths must name the engine's folder");
  }
}

/** @param {string} path @param {AssetUrls} own */
function warnIgnored(path, own) {
  warn(`env.wasm.wasmPaths names ${path}, not this package's files: using ${own.worker}`);
}
