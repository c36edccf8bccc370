// Where the bytes of models and of their external data come from.

import { InvalidInput } from '../../common/errors.js';
import { isProgram } from '../../common/program_mark.js';
import { platform } from '../../common/platform.js';
import { hasSharedMemory } from '../../common/shared_memory.js';
import { threadCount } from '../engine/client.js';
import { replacedFetch, servedFetch } from '../engine/page_fetch.js';
import { isShared } from '../tensors/wire_tensors.js';

/** @import { Origin } from '../../common/protocol.js' */
/** @typedef {string | URL | BufferSource | SharedArrayBuffer | Blob | Response | ReadableStream | FileSystemFileHandle} Source */
/** @typedef {string | { path: string, data: Source }} ExternalFile */

const LARGE = 32 * 2 ** 20; // bytes: smaller models are sent at once

/**
 * Sources by stand-in address, while a call passes through onnxruntime-common, which takes only addresses and bytes.
 * @type {Map<unknown, Source>}
 */
const sources = new Map();
let next = 1;

/** The class by its name: another frame or context has other classes. @param {any} value */
const kindOf = (value) => Object.prototype.toString.call(value).slice(8, -1);
/** @param {any} value */
const isUrl = (value) => kindOf(value) === 'URL';
/** @param {any} value @returns {value is Blob} */
const isBlob = (value) => ['Blob', 'File'].includes(kindOf(value));
/** @param {any} value whether only another context's onnxruntime-common would accept it */
const isForeign = (value) => (
  ['Uint8Array', 'ArrayBuffer', 'SharedArrayBuffer'].includes(kindOf(value)) && !(value instanceof /** @type {any} */ (globalThis)[kindOf(value)]));

/**
 * Calls `use` with a model that onnxruntime-common accepts: itself, or a stand-in address.
 * @template T @param {any} model @param {(model: unknown) => Promise<T>} use
 */
export async function withAddress(model, use) {
  if (!(isBlob(model) || isUrl(model) || isForeign(model) || model?.getFile || model?.getReader || model?.body)) return use(model);
  const url = `blob:pyruntime/${next++}`;
  sources.set(url, model);
  try {
    return await use(url);
  } finally {
    sources.delete(url);
  }
}

/**
 * @param {any} given a `Source` @param {string} [base] of its address @param {boolean | string} [keep] the option `cache`
 * @returns {Origin}
 */
function origin(given, base, keep) {
  const source = sources.get(given) ?? given;
  if (typeof source === 'string' || isUrl(source)) return { url: platform.address(String(source), base), keep };
  if (isBlob(source)) return { blob: source };
  if (source?.getFile) return { handle: source };
  const stream = source?.body ?? source;
  if (stream?.getReader && !stream.locked && !source.bodyUsed && source.ok !== false) return { stream };
  if (!(source?.byteLength >= 0)) {
    throw new InvalidInput('models and external data are addresses, bytes, Blobs, handles of files, streams that nobody reads, '
      + 'or responses that are ok');
  }
  const bytes = ArrayBuffer.isView(source) ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength) : new Uint8Array(source);
  if (bytes.length >= LARGE && !isShared(bytes) && !isProgram(bytes)) return served(bytes);
  return { bytes: bytes.length === bytes.buffer.byteLength || isShared(bytes) ? bytes : bytes.slice() };
}

/** Sends the worker parts of these bytes as it asks for them, so that the page never waits for a large copy. @param {Uint8Array} bytes */
function served(bytes) {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data: { from, to } }) => {
    const part = bytes.length ? new Uint8Array(bytes.subarray(from, to)) : new Uint8Array(); // detached: the worker refuses it
    port1.postMessage(part, [part.buffer]);
  };
  /** @type {any} */ (port1).unref?.(); // Node.js: the call keeps the program running
  return { port: port2, size: bytes.length };
}

/** What to transfer to the worker. @param {{ model: Origin, external: { origin: Origin }[], fetchPort?: MessagePort }} params */
export const streamsOf = ({ model, external, fetchPort }) => {
  const streams = [model, ...external.map((file) => file.origin)].flatMap((from) => ('stream' in from ? from.stream : 'port' in from ? from.port : []));
  return fetchPort ? [fetchPort, ...streams] : streams;
};

/** @param {ExternalFile} file @param {Origin} model @param {boolean | string} [keep] */
function externalFile(file, model, keep) {
  if (typeof file === 'string') return { path: file, origin: origin(file, 'url' in model ? model.url : undefined, keep) };
  if (typeof file?.path !== 'string') throw new InvalidInput('externalData has names, and { path, data }');
  return { path: file.path, origin: origin(file.data, undefined, keep) };
}

/**
 * The parameters by which the worker reads and compiles a model.
 * @param {any} source a `Source` @param {ReturnType<typeof import('../options/options.js').sessionOptions>} settings
 * @param {boolean | string} [keep] the option `cache`
 */
export function modelParams(source, { options, params }, keep) {
  const model = origin(source, undefined, keep);
  const external = (options.externalData ?? []).map((/** @type {ExternalFile} */ file) => externalFile(file, model, keep));
  const fetch = options.fetch ?? replacedFetch();
  return {
    model, external, fetchPort: fetch ? servedFetch(fetch) : undefined, shared: hasSharedMemory(),
    threads: threadCount(options.intraOpNumThreads, options.preset, params.logOptions), ...params,
  };
}
