// Refuses wrong feeds before they are sent. The session stays usable.

import { Tensor } from 'onnxruntime-common';
import { InvalidInput, shownNames } from '../../common/errors.js';
import { CachedOutput } from './cached_outputs.js';

/** @import { ValueInfo } from '../../common/protocol.js' */

/** Element types that onnxruntime's API does not name -> the type of their raw bits. @type {Record<string, string>} */
export const RAW = {
  bfloat16: 'uint16', float8e4m3fn: 'uint8', float8e4m3fnuz: 'uint8', float8e5m2: 'uint8', float8e5m2fnuz: 'uint8',
  float8e8m0: 'uint8', float4e2m1: 'uint8', uint2: 'uint8', int2: 'int8', float6e2m3: 'uint8', float6e3m2: 'uint8',
};

/**
 * Returns the feeds. As in onnxruntime, a scalar input takes a tensor of any rank with one element.
 * @template {object} T
 * @param {T} feeds
 * @param {ValueInfo[]} inputs
 * @param {(name: string) => boolean} [isNeeded] whether the run needs an input
 * @returns {T}
 */
export function checkFeeds(feeds, inputs, isNeeded = () => true) {
  if (typeof feeds !== 'object' || feeds === null || feeds instanceof Tensor || Array.isArray(feeds)) {
    throw new InvalidInput('feeds must be an object of tensors by input name', { hint: `inputs: ${list(inputs)}` });
  }
  const known = new Set(inputs.map(({ name }) => name));
  const given = /** @type {Record<string, unknown>} */ (feeds);
  const refuse = (/** @type {string} */ message) => { throw new InvalidInput(message, { hint: `inputs: ${list(inputs)}` }); };
  for (const name of Object.keys(feeds)) {
    if (!known.has(name)) refuse(`there is no input "${name}"`);
  }
  for (const info of inputs) {
    const tensor = Object.hasOwn(feeds, info.name) ? given[info.name] : undefined;
    if ((tensor === undefined || tensor === null) && info.optional || tensor === undefined && info.hasDefault) continue;
    if (tensor === undefined && !isNeeded(info.name)) continue;
    if (tensor === undefined) refuse(`input "${info.name}" is missing`);
    if (info.sequence) checkSequence(info, tensor);
    else checkTensor(info, tensor);
  }
  const tensorOf = (/** @type {string} */ name) => /** @type {Tensor | undefined} */ (given[name]);
  const scalars = inputs.filter(({ name, shape, sequence }) => !sequence && shape?.length === 0 && tensorOf(name)?.dims.length);
  return scalars.length ? { ...feeds, ...Object.fromEntries(scalars.map(({ name }) => [name, tensorOf(name)?.reshape([])])) } : feeds;
}

/** @param {ValueInfo} info @param {unknown} items */
function checkSequence(info, items) {
  if (!Array.isArray(items)) throw new InvalidInput(`input "${info.name}" is a sequence`, { hint: 'feed an array of tensors' });
  items.forEach((item, n) => checkTensor({ ...info, name: `${info.name}[${n}]` }, item));
}

/**
 * @param {ValueInfo} info
 * @param {unknown} tensor
 */
function checkTensor({ name, dtype, shape }, tensor) {
  if (!isTensor(tensor)) {
    throw new InvalidInput(`input "${name}" is not a tensor`, { hint: 'make it with new ort.Tensor(type, data, dims)' });
  }
  const { type, dims } = tensor;
  checkLocation(`input "${name}"`, tensor);
  if (dtype !== null && type !== dtype && type !== RAW[dtype]) {
    throw new InvalidInput(`input "${name}" must be ${dtype}, it is ${type}`, { hint: `new ort.Tensor('${dtype}', data, dims)` });
  }
  if (shape) checkDims(name, shape, tensor);
  if (tensor.location !== 'gpu-buffer' && !CachedOutput.unread(tensor)) checkLength(name, tensor);
}

/**
 * Messages end in onnxruntime's words, because programs parse them (openwakeword-js).
 * @param {string} name @param {NonNullable<ValueInfo['shape']>} shape @param {Tensor} tensor
 */
function checkDims(name, shape, { dims, size, location }) {
  /** @param {string} what @param {unknown} got @param {unknown} wanted */
  const refuse = (what, got, wanted) => {
    const all = shape.map((dim) => dim ?? '?').join(', ');
    throw new InvalidInput(`input "${name}" must be [${all}], it is [${dims.join(', ')}]: ${what} Got: ${got} Expected: ${wanted}`);
  };
  const isNumber = shape.length === 0 && size === 1 && location !== 'gpu-buffer';
  if (shape.length !== dims.length && !isNumber) refuse('rank', dims.length, shape.length);
  shape.forEach((dim, axis) => {
    if (typeof dim === 'number' && dim !== dims[axis]) refuse(`index: ${axis}`, dims[axis], dim);
  });
}

/** @param {string} what @param {Tensor} tensor */
function checkLocation(what, { location }) {
  if (location === 'none') throw new InvalidInput(`${what} was disposed of`, { hint: 'dispose() frees the data: call it after the last run with this tensor' });
  if (location === 'cpu' || location === 'cpu-pinned' || location === 'gpu-buffer') return;
  const hint = 'give a tensor whose data is on the CPU';
  throw new InvalidInput(`${what} lies in a ${location}, which this engine cannot read or write`, { hint });
}

/** @param {[string, unknown][]} fetches name of an output and the tensor to fill, or null for a new one */
export function checkTargets(fetches) {
  for (const [name, into] of fetches) {
    if (into === null) continue;
    if (!isTensor(into)) throw new InvalidInput(`the output "${name}" can be fetched into a tensor or null`);
    checkLocation(`the tensor to fill for "${name}"`, into);
  }
}

/** Programs may change dims after a tensor was created. @param {string} name @param {Tensor} tensor */
function checkLength(name, { type, dims, data }) {
  const size = dims.reduce((product, dim) => product * dim, 1);
  const length = /** @type {{ length: number }} */ (data).length;
  const packed = (type === 'int4' || type === 'uint4') && Math.ceil(size / 2) === length;
  if (size !== length && !packed) {
    throw new InvalidInput(`input "${name}" of dims [${dims.join(', ')}] needs ${size} elements, it has ${length}`);
  }
}

/**
 * @param {string[]} names
 * @param {ValueInfo[]} outputs
 */
export function checkFetches(names, outputs) {
  for (const name of names) {
    if (!outputs.some((info) => info.name === name)) {
      throw new InvalidInput(`there is no output "${name}"`, { hint: `outputs: ${list(outputs)}` });
    }
  }
}

/** Whether a value is a tensor, of this or of another copy of onnxruntime-common. @param {unknown} value @returns {value is Tensor} */
function isTensor(value) {
  if (value instanceof Tensor) return true;
  const like = /** @type {Partial<Tensor> | null} */ (typeof value === 'object' ? value : null);
  return typeof like?.type === 'string' && Array.isArray(like.dims) && typeof like.location === 'string';
}

/** @param {ValueInfo[]} infos */
const list = (infos) => shownNames(infos.map(({ name }) => name)).map((name) => `"${name}"`).join(', ');

/** @param {ValueInfo} info @returns {import('onnxruntime-common').InferenceSession.ValueMetadata} */
export function metadata({ name, dtype, shape, sequence }) {
  if (dtype === null || sequence) return { name, isTensor: false };
  const type = /** @type {Tensor['type']} */ (RAW[dtype] ?? dtype);
  return { name, isTensor: true, type, shape: (shape ?? []).map((dim) => dim ?? '') };
}
