// Where the bytes of models and of their external data come from.

import { InvalidInput } from '../../common/errors.js';
import { isProgram } from '../../common/program_mark.js';
import { platform } from '../../common/platform.js';
import { sharesMemory, threadCount } from '../engine/client.js';
import { replacedFetch, servedFetch } from '../engine/page_fetch.js';
import { isShared } from '../tensors/wire_tensors.js';

/** @import { Origin } from '../../common/protocol.js' */
/** @typedef {string | URL | ArrayBufferView | ArrayBufferLike | Blob | Response | ReadableStream | FileSystemFileHandle} Source */
/** @typedef {string | { path: string, data: Source }} ExternalFile */

const LARGE = 32 * 2 ** 20; // bytes: smaller models are sent at once

/**
 * Sources by stand-in address, while a call passes through onnxruntime-common, which takes only addresses and bytes.
 * @type {Map<unknown, Source>}
 */
const sources = new Map();
let next = 1;

/** The class by its name: another frame or context has other classes. @param {unknown} value */
const kindOf = (value) => Object.prototype.toString.call(value).slice(8, -1);
/** @param {unknown} value */
const isUrl = (value) => kindOf(value) === 'URL';
/** @param {unknown} value @returns {value is Blob} */
const isBlob = (value) => ['Blob', 'File'].includes(kindOf(value));
/** @param {unknown} value @returns {value is FileSystemFileHandle} */
const isHandle = (value) => Boolean(/** @type {FileSystemFileHandle | null} */ (value)?.getFile);
/** @param {unknown} value @returns {value is ReadableStream<Uint8Array<ArrayBuffer>>} */
const isStream = (value) => Boolean(/** @type {ReadableStream | null} */ (value)?.getReader);
/** @param {unknown} value @returns {value is ArrayBufferView | ArrayBufferLike} */
const isBytes = (value) => /** @type {ArrayBuffer} */ (value ?? {}).byteLength >= 0;
/** Of a response. @param {unknown} value */
const bodyOf = (value) => /** @type {Response | null} */ (value)?.body;
/** Whether only another context's onnxruntime-common would accept it. @param {unknown} value */
const isForeign = (value) => ['Uint8Array', 'ArrayBuffer', 'SharedArrayBuffer'].includes(kindOf(value))
  && !(value instanceof /** @type {Record<string, typeof Object>} */ (/** @type {unknown} */ (globalThis))[kindOf(value)]);

/**
 * Calls `use` with a model that onnxruntime-common accepts: itself, or a stand-in address.
 * @template T @param {unknown} model a `Source` @param {(model: unknown) => Promise<T>} use
 */
export async function withAddress(model, use) {
  const isSource = isBlob(model) || isUrl(model) || isForeign(model) || isHandle(model) || isStream(model) || bodyOf(model);
  if (!isSource) return use(model);
  const url = `blob:pyruntime/${next++}`;
  sources.set(url, /** @type {Source} */ (model));
  try {
    return await use(url);
  } finally {
    sources.delete(url);
  }
}

/**
 * @param {unknown} given a `Source` @param {import('onnxruntime-common').InferenceSession.SessionOptions} options of the session
 * @param {string} [base] of its address
 * @returns {Origin}
 */
function origin(given, { cache: keep, worker }, base) {
  const source = sources.get(given) ?? given;
  if (source === '') throw new InvalidInput('the address of the model, or of a file of its weights, is empty');
  if (typeof source === 'string' || isUrl(source)) return { url: platform.address(String(source), base), keep };
  if (isBlob(source)) return { blob: source };
  if (isHandle(source)) return { handle: source };
  const stream = bodyOf(source) ?? source;
  const { bodyUsed, ok } = /** @type {Partial<Response>} */ (source ?? {});
  if (isStream(stream) && !stream.locked && !bodyUsed && ok !== false) return { stream };
  if (!isBytes(source)) {
    const hint = 'they are addresses, bytes, Blobs, handles of files, streams that nobody reads, or responses that are ok';
    throw new InvalidInput(`a model or a file of its weights cannot be ${source === null || typeof source !== 'object' ? String(source) : kindOf(source)}`, { hint });
  }
  const bytes = ArrayBuffer.isView(source) ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength) : new Uint8Array(source);
  const isSent = isShared(bytes) && sharesMemory(worker); // without a copy
  if (bytes.length >= LARGE && !isSent && !isProgram(bytes)) return served(bytes);
  return { bytes: isSent || bytes.length === bytes.buffer.byteLength && !isShared(bytes) ? bytes : bytes.slice() };
}

/** Sends the worker parts of these bytes as it asks for them, so that the page never waits for a large copy. @param {Uint8Array} bytes */
function served(bytes) {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data: { from, to } }) => {
    const part = bytes.length ? new Uint8Array(bytes.subarray(from, to)) : new Uint8Array(); // detached: the worker refuses it
    port1.postMessage(part, [part.buffer]);
  };
  /** @type {{ unref?: () => void }} */ (port1).unref?.(); // Node.js: the call keeps the program running
  return { port: port2, size: bytes.length };
}

/** What to transfer to the worker. @param {{ model: Origin, external: { origin: Origin }[], fetchPort?: MessagePort }} params */
export const streamsOf = ({ model, external, fetchPort }) => {
  const streams = [model, ...external.map((file) => file.origin)].flatMap((from) => ('stream' in from ? from.stream : 'port' in from ? from.port : []));
  return fetchPort ? [fetchPort, ...streams] : streams;
};

/** @param {ExternalFile} file @param {Origin} model @param {import('onnxruntime-common').InferenceSession.SessionOptions} options */
function externalFile(file, model, options) {
  if (typeof file === 'string') return { path: file, origin: origin(file, options, 'url' in model ? model.url : undefined) };
  if (typeof file?.path !== 'string') throw new InvalidInput('externalData has names, and { path, data }');
  return { path: file.path, origin: origin(file.data, options) };
}

/**
 * The parameters by which the worker reads and compiles a model.
 * @param {unknown} source a `Source` @param {ReturnType<typeof import('../options/options.js').sessionOptions>} settings
 */
export function modelParams(source, { options, params }) {
  const model = origin(source, options);
  const external = (options.externalData ?? []).map((file) => externalFile(file, model, options));
  const fetch = options.fetch ?? replacedFetch();
  return {
    model, external, fetchPort: fetch ? servedFetch(fetch) : undefined, shared: sharesMemory(options.worker),
    threads: threadCount(options.intraOpNumThreads, options.preset, params.logOptions), ...params,
  };
}
