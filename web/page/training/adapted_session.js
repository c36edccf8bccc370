// A session with adapters: its runs feed the matrices of those that they name.

import { readAdapter } from './adapter_file.js';
import { checkInfo, placesIn } from './adapter_places.js';
import { Adapters, RANK } from './adapters.js';
import { viewOf } from '../../common/elements.js';
import { InvalidInput } from '../../common/errors.js';
import { checkGiven } from './values.js';

/** @import { Handler } from '../sessions/handler.js' */
/** @import { Adapter } from './adapter_file.js' */
/** @import { Active } from './adapters.js' */
/** @typedef {import('./session_weights.js').PageParts & { platform: any }} PageParts */

/**
 * @param {PageParts} parts @param {any} model @param {any[]} args of `InferenceSession.create`, after the model
 * @param {Handler} [opened] of a Program that has places for adapters, if the session was created without any
 */
export async function adapt(parts, model, args, opened) {
  const options = args.find((given) => given?.adapters) ?? {};
  const { adapters: given = {}, ...rest } = options;
  if (typeof given !== 'object' || Array.isArray(given)) throw new InvalidInput(`adapters cannot be ${Array.isArray(given) ? 'an array' : given}`, { hint: 'an object of files by name' });
  const fetches = (/** @type {string} */ address) => fetched(parts.platform.address(address), parts.platform, options.fetch ?? fetch);
  /** @type {Record<string, Adapter>} */
  const files = Object.fromEntries(await Promise.all(Object.entries(given).map(async ([name, one]) => [name, await readAdapter(one, fetches)])));
  const described = Object.fromEntries(Object.entries(files).map(([name, { tensors, config }]) => [name, { config, tensors: typesOf(tensors) }]));
  const source = args.length > 1 && model?.slice ? model.slice(args[0], args[0] + (typeof args[1] === 'number' ? args[1] : Infinity)) : model;
  /** @type {Handler} */
  const handler = opened ?? await parts.withAddress(source, (/** @type {any} */ accepted) => (
    parts.backend.createInferenceSessionHandler(accepted, rest, { adapting: JSON.stringify(described) })));
  try {
    return adapted(parts, handler, adaptersOf(handler, files));
  } catch (error) {
    await handler.dispose();
    throw error;
  }
}

/** @param {Handler} handler @param {Record<string, Adapter>} files */
function adaptersOf({ about: { adapters: info }, inputs }, files) {
  if (!info) {
    const hint = 'export it from a session with adapters, or open the ONNX model';
    throw new InvalidInput('this Program was exported without places for adapters', { hint });
  }
  if (!info.places) checkInfo(info, inputs);
  const places = /** @type {Record<string, import('../../runtime/adapter_places.js').Places> | undefined} */ (info.places) ?? Object.fromEntries(Object.entries(files).map(([name, file]) => [name, placesIn(info, inputs, name, file)]));
  return new Adapters(files, info, places, Object.fromEntries(inputs.map(({ name, dtype }) => [name, dtype])));
}

/** Types and shapes. @param {Adapter['tensors']} tensors */
const typesOf = (tensors) => Object.fromEntries(Object.entries(tensors).map(([name, { dtype, shape }]) => [name, [dtype, shape]]));

/** @param {string} url @param {any} platform @param {typeof globalThis.fetch} fetch @returns {Promise<Uint8Array | null>} */
async function fetched(url, platform, fetch) {
  if (url.startsWith('file:')) return await platform.exists(url) ? new Uint8Array(platform.readNow(url)) : null;
  const response = await fetch(url);
  return response.ok ? new Uint8Array(await response.arrayBuffer()) : null;
}

/** @param {PageParts} parts @param {Handler} handler @param {Adapters} adapters */
function adapted(parts, handler, adapters) {
  const { InferenceSession, Tensor } = parts;
  const isShown = (/** @type {string} */ name) => !Object.hasOwn(adapters.feeds(), name);
  handler.inputNames = handler.inputNames.filter(isShown);
  handler.inputMetadata = handler.inputMetadata.filter(({ name }) => isShown(name));
  const session = new InferenceSession(handler);
  const toTensor = (/** @type {import('../../run/joined_adapters.js').Fed} */ { data: { buffer, byteOffset, byteLength }, dims, type }) => (
    new Tensor(type === 'bfloat16' ? 'uint16' : type, viewOf(new Uint8Array(buffer, byteOffset, byteLength), type), dims));
  /** Of the run that begins. @type {Active | undefined} */
  let active;
  const added = (/** @type {Active | undefined} */ names) => Object.fromEntries(Object.entries(adapters.feeds(names)).map(([name, fed]) => [name, toTensor(fed)]));
  const checked = handler.checked.bind(handler);
  handler.checked = (feeds, names, wanted = active) => (
    checked(typeof feeds === 'object' && feeds && !(feeds instanceof Tensor) ? { ...added(wanted), ...checkGiven(feeds) } : feeds, names));
  const prepare = handler.prepare.bind(handler);
  handler.prepare = (/** @type {any} */ options) => prepare(options?.dims ? { ...options, dims: { [RANK]: adapters.rank, ...options.dims } } : options);
  session.run = async (/** @type {any} */ feeds, /** @type {any} */ fetches, /** @type {any} */ options) => {
    const settings = options ?? (fetches?.adapters && !handler.outputNames.includes('adapters') ? fetches : undefined);
    const { adapters: wanted, ...rest } = settings ?? {};
    active = wanted;
    try {
      return InferenceSession.prototype.run.call(session, feeds, settings === fetches ? undefined : fetches, settings && rest);
    } finally {
      active = undefined; // the feeds were checked before the run waited for anything
    }
  };
  return session;
}
