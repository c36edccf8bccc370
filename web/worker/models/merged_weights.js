// Weights with the products of adapters added, for the file that a training session exports.
// Twin of pyruntime/native/sessions/stored_arrays.py.

import { floatsOf } from '../../common/half_values.js';

/** @import { ReadFile } from '../../run/environment.js' */
/** @import { Values } from './state_values.js' */
/**
 * base: where the model has the weight, or its bytes in hex; without it the session trains the weight itself.
 * shape: of the weight; products: names of A and B, scale, whether the weight is (fan_out, fan_in), name of DoRA's magnitudes or ""
 * @typedef {{ base: { start: number, size: number, name: string, data: string } | null, shape: number[], products: [a: string, b: string, scale: number, isTransposed: boolean, magnitudes: string][] }} Merged
 */

/**
 * The numbers of the weight in float32, or as it is in float64.
 * @param {Merged} merged @param {string} dtype of the weight @param {Uint8Array | undefined} own bytes of a weight that is trained
 * @param {Values} values @param {ReadFile} read @param {(text: string) => Uint8Array} fromHex @returns {Uint8Array}
 */
export function mergedWeight({ base, shape, products }, dtype, own, values, read, fromHex) {
  const numbers = own ? numbersOf(own, dtype === 'float64' ? dtype : 'float32')
    : numbersOf(base?.data ? fromHex(base.data) : base ? read(base.start, base.size, base.name) : new Uint8Array(), dtype);
  for (const [a, b, scale, isTransposed, magnitudes] of products) {
    const matrix = { w: numbers, fanOut: shape[isTransposed ? 0 : 1], fanIn: numbers.length / shape[isTransposed ? 0 : 1], isTransposed };
    addProduct(matrix, numbersOf(values[a], 'float32'), numbersOf(values[b], 'float32'), scale);
    if (magnitudes) scaleTo(matrix, numbersOf(values[magnitudes], 'float32'));
  }
  return new Uint8Array((dtype === 'float64' ? numbers : Float32Array.from(numbers)).buffer);
}

/** A weight; filters are rows. @typedef {{ w: Float64Array, fanOut: number, fanIn: number, isTransposed: boolean }} Matrix */

/** From one output of a weight to the next, and from one input. @param {Matrix} matrix */
const steps = ({ fanOut, fanIn, isTransposed }) => (isTransposed ? [fanIn, 1] : [1, fanOut]);

/** @param {Matrix} matrix @param {Float64Array} a (rank, fan_in) @param {Float64Array} b (fan_out, rank) @param {number} scale */
function addProduct(matrix, a, b, scale) {
  const { w, fanOut, fanIn } = matrix;
  const rank = a.length / fanIn;
  const [byOut, byIn] = steps(matrix);
  for (let n = 0; n < fanOut; n++) {
    for (let r = 0; r < rank; r++) {
      const factor = b[n * rank + r] * scale;
      if (factor) for (let k = 0; k < fanIn; k++) w[n * byOut + k * byIn] += factor * a[r * fanIn + k];
    }
  }
}

/** Gives the vector of each output this length. @param {Matrix} matrix @param {Float64Array} magnitudes */
function scaleTo(matrix, magnitudes) {
  const { w, fanOut, fanIn } = matrix;
  const [byOut, byIn] = steps(matrix);
  for (let n = 0; n < fanOut; n++) {
    let squares = 0;
    for (let k = 0; k < fanIn; k++) squares += w[n * byOut + k * byIn] ** 2;
    const factor = magnitudes[n] / Math.max(Math.sqrt(squares), 1e-38);
    for (let k = 0; k < fanIn; k++) w[n * byOut + k * byIn] *= factor;
  }
}

/** A copy in double precision. @param {Uint8Array} bytes @param {string} dtype @returns {Float64Array} */
const numbersOf = (bytes, dtype) => (dtype === 'float64' ? new Float64Array(bytes.slice().buffer) : Float64Array.from(floatsOf(bytes, dtype)));
