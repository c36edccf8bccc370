// Values of weights and feeds of a training session: their numbers, their bytes, and all weights as one vector.

import { InvalidInput, shownNames } from '../../common/errors.js';

/** @import { TrainedWeights } from '../../runtime/trained_weights.js' */

/**
 * Feeds of a caller, who does not give those of the engine. Errors: InvalidInput
 * @template {object} T @param {T} feeds
 */
export function checkGiven(feeds) {
  const own = Object.keys(feeds).find((name) => !shownNames([name]).length);
  if (own) throw new InvalidInput(`input '${own}' does not exist`, { hint: "feeds have the names of the model's inputs" });
  return feeds;
}

/** @param {Uint8Array} bytes @param {string} dtype */
export const arrayOf = ({ buffer, byteOffset, length }, dtype) => (
  dtype === 'float64' ? new Float64Array(buffer, byteOffset, length / 8) : new Float32Array(buffer, byteOffset, length / 4));

/** A copy of an array's bytes. @param {any} array */
export const bytesOf = ({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength).slice();

/** A target in the type of its feed: labels may be any integers, other targets any numbers. @param {any} x a tensor @param {string} type */
export function fitted(x, type) {
  if (!(x?.data && x.dims) || x.type === type) return x;
  const Tensor = x.constructor;
  const isWhole = /^u?int/.test(x.type);
  if (type === 'int64') return isWhole ? new Tensor('int64', BigInt64Array.from(x.data, BigInt), x.dims) : x;
  const numbers = Array.from(x.data, Number);
  return new Tensor(type, type === 'float64' ? Float64Array.from(numbers) : Float32Array.from(numbers), x.dims);
}

/** @param {TrainedWeights} weights @param {boolean} trainableOnly @param {Record<string, { data: ArrayLike<number> }>} tensors */
export function joined(weights, trainableOnly, tensors) {
  const vector = new Float32Array(weights.size(trainableOnly));
  let at = 0;
  for (const { name } of weights.listed(trainableOnly)) {
    vector.set(tensors[name].data, at);
    at += tensors[name].data.length;
  }
  return vector;
}

/**
 * The parts of a vector that `joined` made. Errors: InvalidInput
 * @param {TrainedWeights} weights @param {boolean} trainableOnly @param {any} given Float32Array, its bytes, or a tensor
 * @returns {{ name: string, shape: number[], data: Float32Array }[]}
 */
export function split(weights, trainableOnly, given) {
  const data = given?.data ?? given;
  const floats = asFloats(data);
  const vector = floats ?? new Float32Array();
  const type = floats ? 'float32' : String(data?.constructor.name);
  weights.checkVector((floats ?? data)?.length ?? 0, type, vector.every(Number.isFinite), trainableOnly);
  let at = 0;
  return weights.listed(trainableOnly).map(({ name, shape }) => (
    { name, shape, data: vector.subarray(at, at += shape.reduce((product, dim) => product * dim, 1)) }));
}

/** @param {any} data @returns {Float32Array | null} null for other types */
function asFloats(data) {
  if (data instanceof Float32Array) return data;
  const bytes = data instanceof ArrayBuffer ? new Uint8Array(data) : data;
  return bytes instanceof Uint8Array && bytes.length % 4 === 0 ? new Float32Array(bytes.slice().buffer) : null;
}
