// Weights as one vector of float32, for averages of several sessions.
// Twin of pyruntime/native/training/weight_vectors.py.

import { InvalidInput } from '../../common/errors.js';

/** @typedef {{ name: string, shape: readonly number[] }} Shape */

/** @param {Shape} shape */
const sizeOf = ({ shape }) => shape.reduce((product, dim) => product * dim, 1);

/** @param {readonly Shape[]} shapes */
export const totalSize = (shapes) => shapes.reduce((sum, one) => sum + sizeOf(one), 0);

/** @param {readonly Shape[]} shapes @param {Record<string, { data: ArrayLike<number> }>} tensors */
export function joined(shapes, tensors) {
  const vector = new Float32Array(totalSize(shapes));
  let at = 0;
  for (const one of shapes) {
    vector.set(tensors[one.name].data, at);
    at += sizeOf(one);
  }
  return vector;
}

/**
 * The parts of a vector that `joined` made. Errors: InvalidInput for another size, or numbers that are not finite, because an
 * average with one of these would end the training of all
 * @param {readonly Shape[]} shapes @param {any} given Float32Array, its bytes, or a tensor @returns {[string, Float32Array][]}
 */
export function split(shapes, given) {
  const vector = asFloats(given?.data ?? given);
  if (vector?.length !== totalSize(shapes)) {
    const hint = 'give what getContiguousParameters() of a session for this model returned';
    throw new InvalidInput(`the vector has ${vector?.length ?? 'no'} numbers of float32, the weights ${totalSize(shapes)}`, { hint });
  }
  if (!vector.every(Number.isFinite)) throw new InvalidInput('the vector has numbers that are not finite');
  let at = 0;
  return shapes.map((one) => [one.name, vector.subarray(at, at += sizeOf(one))]);
}

/** @param {any} data @returns {Float32Array | null} */
function asFloats(data) {
  if (data instanceof Float32Array) return data;
  const bytes = data instanceof ArrayBuffer ? new Uint8Array(data) : data;
  return bytes instanceof Uint8Array && bytes.length % 4 === 0 ? new Float32Array(bytes.slice().buffer) : null;
}
