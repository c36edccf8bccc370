// Feeds of a model, and the comparison of its outputs: the same for every runtime.

/** @typedef {{ name: string, type: string, dims: number[], offset: number, size: number, frames: number }} FeedInfo frames 0: the same in every run */
/**
 * @typedef {object} ModelInfo
 * @property {string} name
 * @property {string} model its address
 * @property {string} data the address of the feeds' bytes
 * @property {FeedInfo[]} feeds
 * @property {Record<string, string>} feedback input to the output of the run before
 * @property {FeedInfo[]} results what the outputs must be, by a run-time of its own with no optimisation
 * @property {string} resultData the address of their bytes
 * @property {string | null} check the same model with inner outputs to compare by, where its own are chaotic
 * @property {number} checked runs before results are compared, where state is fed back
 * @property {number} tolerance of results, as a share of the largest value
 */
/** @typedef {ArrayLike<number | bigint>} Numbers */
/** @typedef {{ type: string, dims: readonly number[], data: Numbers }} Output */
/** @typedef {Record<string, Output>} Outputs */
/** @typedef {{ dims: number[], type: string, bytes: ArrayBuffer }} Feed */

/** A model that this page feeds itself. @type {ModelInfo} */
export const NOTHING = { name: '', model: '', data: '', resultData: '', feeds: [], results: [], feedback: {}, check: null, checked: 1, tolerance: 0 };

/** @type {Record<string, any>} */
const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: /** @type {any} */ (globalThis).Float16Array ?? Uint16Array,
  int64: BigInt64Array, uint64: BigUint64Array, int32: Int32Array, uint32: Uint32Array,
  int16: Int16Array, uint16: Uint16Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array,
};

/** @param {string} type @param {ArrayBuffer} bytes */
export const typed = (type, bytes) => new ARRAYS[type](bytes);

/** @param {string} address @returns {Promise<ArrayBuffer>} */
export async function fetchBuffer(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address}: HTTP ${response.status}`);
  return response.arrayBuffer();
}

/** @param {ModelInfo} info @returns {Promise<Outputs>} */
export async function expected({ results, resultData }) {
  const bytes = await fetchBuffer(resultData);
  return Object.fromEntries(results.map(({ name, type, dims, offset, size }) => {
    return [name, { type, dims, data: typed(type, bytes.slice(offset, offset + size)) }];
  }));
}

/** Yields the feeds of consecutive runs; feeds with frames take the next frame each time. */
export class Feeds {
  /** @param {ModelInfo} info @param {ArrayBuffer} data */
  constructor(info, data) {
    this.info = info;
    this.data = data;
  }

  /** @param {FeedInfo} feed @param {number} run @returns {Feed} */
  at({ type, dims, offset, size, frames }, run) {
    const start = offset + (frames ? run % frames : 0) * size;
    return { type, dims, bytes: this.data.slice(start, start + size) };
  }
}

/** Values as numbers; raw 16-bit patterns of half floats are decoded. @param {Output} output @returns {Numbers} */
function values({ type, data }) {
  if (type !== 'float16' || !(data instanceof Uint16Array)) return data;
  return typed('float16', data.slice().buffer);
}

/**
 * Returns the largest difference from the expected results, for floats as a share of the largest value; a text if they
 * cannot be compared.
 * @param {Outputs} found @param {Outputs} wanted @returns {number | string}
 */
export function difference(found, wanted) {
  let worst = 0;
  for (const [name, reference] of Object.entries(wanted)) {
    const output = found[name];
    if (!output) return `no output ${name}`;
    if (output.dims.join() !== reference.dims.join()) return `${name} is [${output.dims}], not [${reference.dims}]`;
    const one = distance(values(output), values(reference), reference.type.startsWith('float'));
    if (Number.isNaN(one)) return `${name} is NaN on one side only`;
    worst = Math.max(worst, one);
  }
  return worst;
}

/** @param {Numbers} a @param {Numbers} b @param {boolean} relative @returns {number} */
function distance(a, b, relative) {
  let [worst, size] = [0, 0];
  for (let i = 0; i < a.length; i++) {
    const [x, y] = [Number(a[i]), Number(b[i])];
    if (Object.is(x, y) || x === y) continue;
    const apart = Math.abs(x - y);
    if (!(apart <= worst)) worst = apart;
  }
  if (!relative || worst === 0) return worst;
  for (let i = 0; i < b.length; i++) if (Math.abs(Number(b[i])) > size) size = Math.abs(Number(b[i]));
  return worst / (size || 1);
}
