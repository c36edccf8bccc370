// Feeds for an unknown model: free dims from fields, random numbers.

import * as ort from 'pyruntime';
import { make } from '../common.js';

/** @typedef {import('pyruntime').InferenceSession.TensorValueMetadata} TensorValueMetadata */

/** Fields for the free dims, by name. */
export class Dims {
  /** @param {ort.InferenceSession} session */
  constructor(session) {
    this.inputs = session.inputMetadata.filter((value) => value.isTensor);
    /** @type {Map<string, HTMLInputElement>} */
    this.fields = new Map();
    /** By name: the dim's axis and input. @type {Map<string, string>} */
    this.labels = new Map();
    for (const { name, shape } of this.inputs) shape.forEach((dim, axis) => this.addField(name, dim, axis));
  }

  /** @param {string} input @param {number | string} dim @param {number} axis */
  addField(input, dim, axis) {
    const key = this.key(input, dim, axis);
    if (typeof dim === 'number' || this.fields.has(key)) return;
    this.labels.set(key, `${dim ? `${dim}: ` : ''}axis ${axis} of ${input}`);
    this.fields.set(key, /** @type {HTMLInputElement} */ (make('input', { type: 'number', min: 0, step: 1, value: guess(key, input) })));
  }

  /** @param {string} input @param {number | string} dim @param {number} axis */
  key(input, dim, axis) {
    return String(dim || `${input}[${axis}]`);
  }

  /** @returns {HTMLElement} */
  form() {
    const labels = [...this.fields].map(([name, field]) => make('label', { class: 'small' }, `${this.labels.get(name)} `, field));
    return make('div', { class: 'row dims' }, ...labels);
  }

  /** @returns {Record<string, ort.Tensor>} */
  feeds() {
    return Object.fromEntries(this.inputs.map((input) => [input.name, this.tensor(input)]));
  }

  /** @param {string} name @param {number | string} dim @param {number} axis @returns {number} */
  size(name, dim, axis) {
    if (typeof dim === 'number') return dim;
    const key = this.key(name, dim, axis);
    const size = Number(this.fields.get(key)?.value);
    if (Number.isInteger(size) && size >= 0) return size;
    throw new RangeError(`${this.labels.get(key)}: a size is a whole number from 0 on`);
  }

  /** @param {TensorValueMetadata} input @returns {ort.Tensor} */
  tensor({ name, type, shape }) {
    const dims = shape.map((dim, axis) => this.size(name, dim, axis));
    const size = dims.reduce((product, dim) => product * dim, 1);
    if (size > LARGEST) throw new RangeError(`${name} [${dims.join(', ')}] has ${size} elements, more than this page makes (${LARGEST})`);
    const data = type === 'string' ? new Array(size).fill('text') : elements(type, size, name);
    return /** @type {any} */ (new ort.Tensor(/** @type {any} */ (type), /** @type {any} */ (data), dims));
  }
}

const LARGEST = 2 ** 28; // elements of an input: 1 GiB of floats

/** A default size for a free dim. @param {string} name @param {string} input */
function guess(name, input) {
  if (/past|cache/i.test(name)) return 0;
  if (/seq|len|time|tokens/i.test(name)) return 16;
  if (/height|width/i.test(name)) return 224;
  return /^input\[1\]$/.test(name) && input === 'input' ? 576 : 1;
}

/** The arrays that carry elements, by type. @type {Record<string, new (size: number) => { length: number, [i: number]: number | bigint }>} */
const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, int64: BigInt64Array, uint64: BigUint64Array, int32: Int32Array,
  uint32: Uint32Array, int16: Int16Array, uint16: Uint16Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array, int4: Uint8Array, uint4: Uint8Array,
};

/** Elements of an input that nothing is known about. @param {string} type @param {number} size @param {string} name */
export function elements(type, size, name) {
  const made = new (ARRAYS[type] ?? Float32Array)(/int4$/.test(type) ? Math.ceil(size / 2) : size);
  for (let i = 0; i < made.length; i++) made[i] = element(type, name);
  return made;
}

/** A plausible element: 1 for a mask, 16000 for a sampling rate, a small index. @param {string} type @param {string} name */
function element(type, name) {
  if (type === 'int64' || type === 'uint64') return name === 'sr' ? 16000n : BigInt(/mask/.test(name) ? 1 : /type/.test(name) ? 0 : Math.floor(64 * Math.random()));
  if (type === 'bool') return 1;
  if (type === 'float16') return 0x3000 + Math.floor(0xc00 * Math.random()); // 0.125 to 1
  if (type.startsWith('float')) return 2 * Math.random() - 1;
  return Math.floor(64 * Math.random());
}
