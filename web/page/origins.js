// Where the bytes of models and of their external data come from.

import { place } from '../common/place.js';
import { isShared } from './tensors.js';

/** @typedef {import('../common/protocol.js').Origin} Origin */

/** Those that go through onnxruntime-common, which takes no Blobs, by addresses that they have here alone. @type {Map<string, Blob>} */
const addressed = new Map();
let next = 1;

/** What `use` gives for an address of a Blob, or for anything else as it is. @template T @param {unknown} model @param {(model: unknown) => Promise<T>} use */
export async function byAddress(model, use) {
  if (!(model instanceof Blob)) return use(model);
  const url = `blob:pyruntime/${next++}`;
  addressed.set(url, model);
  try {
    return await use(url);
  } finally {
    addressed.delete(url);
  }
}

/** @param {string | Uint8Array | ArrayBufferLike | Blob} source @param {string} [base] @param {boolean | string} [keep] what has an address @returns {Origin} */
export function origin(source, base, keep) {
  if (source instanceof Blob) return { blob: source };
  const blob = typeof source === 'string' && addressed.get(source);
  if (blob) return { blob };
  if (typeof source === 'string') return { url: place.address(source, base), keep };
  if (!(source instanceof Uint8Array)) return { bytes: new Uint8Array(source) };
  const whole = source.byteLength === source.buffer.byteLength || isShared(source);
  return { bytes: whole ? source : source.slice() };
}

/** @typedef {NonNullable<import('onnxruntime-common').InferenceSession.SessionOptions['externalData']>[number]} ExternalFile */

/**
 * @param {ExternalFile} file
 * @param {string | Uint8Array} model
 * @param {boolean | string} [keep]
 */
export function externalFile(file, model, keep) {
  const base = typeof model === 'string' && !addressed.has(model) ? /** @type {{ url: string }} */ (origin(model)).url : undefined;
  if (typeof file === 'string') return { path: file.slice(file.lastIndexOf('/') + 1), origin: origin(file, base, keep) };
  return { path: file.path, origin: origin(file.data, typeof file.data === 'string' ? undefined : base, keep) };
}
