// Downloads the engine's files. A failure names the file; Pyodide itself would log it and wait for ever.

import { SessionFailed } from '../../common/errors.js';
import { importScript } from '../../common/import_script.js';
import { warn } from '../../common/log.js';
import { mark } from '../../common/marks.js';
import { platform } from '../../common/platform.js';
import { HINT } from '../../common/spawn.js';
import { joinOnDemand, warmLater, warmUp } from './split_wasm.js';

/** A data: address holds the whole file. @param {string} url */
const shown = (url) => url.slice(0, 200);

/** @param {string} url @param {unknown} cause */
export const failure = (url, cause) => (
  new SessionFailed(`cannot load ${shown(url)}: ${/** @type {Error} */ (cause).message}`, { hint: HINT, cause }));

/** @param {Response} response */
function checkStatus(response) {
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  return response;
}

/** Downloads a ZIP file. @param {string} url @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function download(url) {
  try {
    const bytes = new Uint8Array(await checkStatus(await fetch(url)).arrayBuffer());
    if (!isWholeZip(bytes)) throw new Error('it is cut off');
    return bytes;
  } catch (cause) {
    throw failure(url, cause);
  }
}

/** @param {string} url */
export async function downloadImage(url) {
  try {
    return new Uint8Array(await checkStatus(await fetch(url)).arrayBuffer());
  } catch (cause) {
    throw new Error(failure(url, cause).detail, { cause }); // Python can start without it
  }
}

/**
 * Whether a ZIP file ends with its end record, which without a comment has 22 bytes and begins with a signature.
 * @param {Uint8Array} bytes
 */
const isWholeZip = ({ buffer, length }) => length >= 22 && new DataView(buffer).getUint32(length - 22, true) === 0x06054b50;

/** @template Module @param {string} url @returns {Promise<Module>} */
export const importModule = (url) => (platform.module ?? importScript)(url);

/**
 * Runs `start`, which makes Pyodide fetch its .wasm and the standard library; rejects when one of them cannot be loaded.
 * @template T @param {{ wasm: string, rest: string, stdlib: string }} urls
 * @param {{ library: Promise<Uint8Array<ArrayBuffer>>, compiled: Promise<WebAssembly.Module | null> | null }} files
 * library: content of the standard library; compiled: the .wasm, if the page compiles it, or null if that failed
 * @param {(error: Error) => void} broken called when a running Pyodide cannot load its second half
 * @param {() => Promise<T>} start @returns {Promise<T>}
 */
export async function watchDownloads({ wasm, rest, stdlib }, { library, compiled }, broken, start) {
  const { fetch } = globalThis;
  const { instantiateStreaming } = WebAssembly;
  /** @type {(error: Error) => void} */
  let fail;
  const failed = new Promise((_, reject) => { fail = reject; });
  library.catch((error) => fail(error));
  globalThis.fetch = async (resource, options) => {
    if (String(resource) === stdlib) return new Response(await library);
    const module = String(resource).startsWith(wasm) ? await compiled : null;
    return module ? Response.json(null) : fetch(resource, options); // Pyodide passes the response to instantiateStreaming only
  };
  WebAssembly.instantiateStreaming = async (source, imports) => {
    try {
      const module = await compiled;
      const made = module ? { module, instance: await WebAssembly.instantiate(module, imports) }
        : await instantiate(checkStatus(await source), imports, instantiateStreaming);
      if (module) setTimeout(warmLater, 4000, made.instance); // when a session is probably open and has run
      else warmUp(made.module);
      mark('interpreter instantiated');
      return joinOnDemand(made, imports ?? {}, () => platform.readNow(rest), (cause) => {
        const error = failure(rest, cause);
        broken(error);
        return error;
      });
    } catch (cause) {
      const error = failure(wasm, cause);
      fail(error);
      throw error;
    }
  };
  try {
    return await /** @type {Promise<T>} */ (Promise.race([start(), failed]));
  } finally {
    Object.assign(globalThis, { fetch });
    Object.assign(WebAssembly, { instantiateStreaming });
  }
}

/**
 * Instantiates while the file arrives, which needs the right Content-Type; otherwise afterwards, with a warning.
 * @param {Response} response @param {WebAssembly.Imports | undefined} imports @param {typeof WebAssembly.instantiateStreaming} streaming
 */
async function instantiate(response, imports, streaming) {
  const type = response.headers.get('content-type') ?? '';
  if (/^application\/wasm\b/i.test(type)) return streaming(response, imports);
  warn(`${response.url} is served as "${type}"; served as application/wasm it would start faster`);
  return WebAssembly.instantiate(await response.arrayBuffer(), imports);
}
