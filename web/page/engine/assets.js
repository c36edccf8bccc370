// Where the engine's files are. Each `new URL('./name', import.meta.url)` is a pattern bundlers know: they copy the
// file and put its final address here. The builds for <script> and require() put the script's own address for
// import.meta.url (scripts/build_web.mjs).

import { InvalidInput } from '../../common/errors.js';
import { warn } from '../../common/log.js';
import { place } from '../../common/place.js';
import { mapValues } from '../../common/records.js';

/**
 * @typedef {{ worker: string, asm: string, wasm: string, rest: string, image: string, stdlib: string, stdlibRest: string, engine: string, gpu: string }} AssetUrls
 */

/** Their names in dist/. @type {Record<keyof AssetUrls, string>} */
export const NAMES = {
  worker: 'worker.mjs', asm: 'pyodide.asm.mjs', wasm: 'pyodide.asm.wasm', rest: 'pyodide.rest.wasm', image: 'python.image.wasm',
  stdlib: 'python_stdlib.zip', stdlibRest: 'python_rest.zip', engine: 'engine.zip', gpu: 'gpu.mjs',
};

/** For who serves them. */
export const HINT = 'serve all files of dist/ unchanged, from one folder';

/** Of the files that were built together with this one. @returns {AssetUrls} */
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
    gpu: new URL('./gpu.mjs', import.meta.url).href,
  };
}

/** Of those files in a folder. @param {string} folder @returns {AssetUrls} */
function urlsIn(folder) {
  const base = addressOf(folder.endsWith('/') ? folder : `${folder}/`);
  return /** @type {AssetUrls} */ (mapValues(NAMES, (name) => new URL(name, base).href));
}

/** @param {string} text */
const addressOf = (text) => place.address(text, globalThis.location?.href);

/**
 * Whether an address is where programs say onnxruntime-web's files are, on CDNs: nobody asks there for ours.
 * @param {string} text
 */
const ofAnother = (text) => /\/(?:onnxruntime-web|transformers)@\d/.test(new URL(addressOf(text)).pathname);

/**
 * Addresses of all files. `paths` (env.wasm.wasmPaths) is a folder, or an object with the addresses `mjs` of worker.mjs
 * and `wasm` of pyodide.asm.wasm. Programs written for onnxruntime-web name its files there: what has not our files
 * is passed over, with a warning.
 * @param {unknown} paths
 * @returns {Promise<AssetUrls>}
 */
export async function assetUrls(paths) {
  const folder = typeof paths === 'string' && paths;
  if (folder && !ofAnother(folder)) {
    const urls = urlsIn(folder);
    if (await place.exists(urls.worker)) return urls;
  }
  const own = known();
  if (folder) passedOver(folder, own);
  else if (typeof paths === 'object' && paths) {
    const { mjs: worker, wasm } = /** @type {{ mjs?: unknown, wasm?: unknown }} */ (paths);
    for (const [key, url] of /** @type {['worker' | 'wasm', unknown][]} */ ([['worker', worker], ['wasm', wasm]])) {
      if (!url) continue;
      const address = addressOf(String(url));
      if (new URL(address).pathname.endsWith(`/${NAMES[key]}`)) own[key] = address;
      else passedOver(String(url), own);
    }
  }
  return own;
}

/** Of our files, where the script knows its own address: bundles of esbuild's that are no modules do not. */
function known() {
  try {
    return ownUrls();
  } catch {
    throw new InvalidInput("env.wasm.wasmPaths must name the engine's folder");
  }
}

/** @param {string} given @param {AssetUrls} own */
function passedOver(given, own) {
  warn(`env.wasm.wasmPaths names ${given}, not this package's files: using ${own.worker}`);
}
