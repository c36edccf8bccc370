// Where the bytes of models and of their external data come from.

import { InvalidInput } from '../../common/errors.js';
import { place } from '../../common/place.js';
import { isShared } from '../tensors/wire_tensors.js';

/** @typedef {import('../../common/protocol.js').Origin} Origin */

/** @typedef {string | URL | BufferSource | SharedArrayBuffer | Blob | Response | ReadableStream | FileSystemFileHandle} Given */

/** Those that go through onnxruntime-common, which takes addresses and bytes alone, by addresses that they have here. @type {Map<unknown, Given>} */
const addressed = new Map();
let next = 1;

/** What `use` gives for an address of it, or for what onnxruntime-common knows as it is. @template T @param {any} model @param {(model: unknown) => Promise<T>} use */
export async function byAddress(model, use) {
  if (!(model instanceof Blob || model instanceof URL || model?.getFile || model?.getReader || model?.body)) return use(model);
  const url = `blob:pyruntime/${next++}`;
  addressed.set(url, model);
  try {
    return await use(url);
  } finally {
    addressed.delete(url);
  }
}

/** @param {any} source a `Given` @param {string} [base] @param {boolean | string} [keep] what has an address @returns {Origin} */
export function origin(source, base, keep) {
  const given = addressed.get(source) ?? source;
  if (typeof given === 'string' || given instanceof URL) return { url: place.address(String(given), base), keep };
  if (given instanceof Blob) return { blob: given };
  if (given?.getFile) return { handle: given };
  const stream = given?.body ?? given;
  if (stream?.getReader && !stream.locked && !given.bodyUsed && given.ok !== false) return { stream };
  if (!(given?.byteLength >= 0)) throw new InvalidInput('models and external data are addresses, bytes, Blobs, handles of files, streams that nobody reads, or responses that are ok');
  const bytes = ArrayBuffer.isView(given) ? new Uint8Array(given.buffer, given.byteOffset, given.byteLength) : new Uint8Array(given);
  return { bytes: bytes.length === bytes.buffer.byteLength || isShared(bytes) ? bytes : bytes.slice() };
}

/** What moves to the worker. @param {{ model: Origin, external: { origin: Origin }[] }} params */
export const streamsOf = ({ model, external }) => [model, ...external.map((file) => file.origin)].flatMap((from) => ('stream' in from ? from.stream : []));

/** @typedef {string | { path: string, data: Given }} ExternalFile */

/**
 * @param {ExternalFile} file
 * @param {Origin} model
 * @param {boolean | string} [keep]
 */
export function externalFile(file, model, keep) {
  if (typeof file === 'string') return { path: file, origin: origin(file, 'url' in model ? model.url : undefined, keep) };
  if (typeof file?.path !== 'string') throw new InvalidInput('externalData has names, and { path, data }');
  return { path: file.path, origin: origin(file.data, undefined, keep) };
}
