// Numbers that Python and JavaScript draw alike (kit/gpu_values.py is the twin and describes them).

/** @typedef {{ type: 'float32' | 'float16' | 'uint8' | 'int64', dims: number[], seed: number, low: number, high: number, values?: number[], offset: number }} Values */

const ARRAYS = { float32: Float32Array, float16: Uint16Array, uint8: Uint8Array, int64: BigInt64Array };
const [STEP, SEEDS] = [0x9E3779B9, 0x85EBCA6B];

/** A function from an element's number to 32 bits. @param {number} seed */
function hash(seed) {
  const first = Math.imul(seed, SEEDS);
  return (/** @type {number} */ i) => {
    let x = Math.imul(i, STEP) + first;
    x = Math.imul(x ^ x >>> 16, 0x7FEB352D);
    x = Math.imul(x ^ x >>> 15, 0x846CA68B);
    return (x ^ x >>> 16) >>> 0;
  };
}

/** A function from an element's number to its value; of half floats it is their bits. @param {Values} values */
function drawing({ type, seed, low, high }) {
  const bits = hash(seed);
  const [reach, exponent] = [high - low, Math.log2(high) + 14 << 10];
  if (type === 'float16') return (/** @type {number} */ i) => bits(i) & 0x83FF | exponent;
  if (type === 'float32') return (/** @type {number} */ i) => low + reach * ((bits(i) >>> 8) / 2 ** 24);
  return (/** @type {number} */ i) => low + bits(i) % (reach + 1);
}

/** The elements. @param {Values} values */
export function elementsOf(values) {
  const count = values.dims.reduce((product, dim) => product * dim, 1);
  const found = new ARRAYS[values.type](count);
  const element = values.values ? (/** @type {number} */ i) => /** @type {number[]} */ (values.values)[i] : drawing(values);
  if (found instanceof BigInt64Array) for (let i = 0; i < count; i++) found[i] = BigInt(element(i));
  else for (let i = 0; i < count; i++) found[i] = element(i);
  return found;
}

/** The bytes of all weights, as the external data of a model. @param {Values[]} weights */
export function weightsOf(weights) {
  const parts = weights.map((values) => ({ at: values.offset, data: elementsOf(values) }));
  const all = new Uint8Array(Math.max(0, ...parts.map(({ at, data }) => at + data.byteLength)));
  for (const { at, data } of parts) all.set(new Uint8Array(data.buffer), at);
  return all;
}
