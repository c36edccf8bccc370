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
    this.fields.set(key, /** @type {HTMLInputElement} */ (make('input', { type: 'number', min: 0, value: guess(key, input) })));
  }

  /** @param {string} input @param {number | string} dim @param {number} axis */
  key(input, dim, axis) {
    return String(dim || `${input}[${axis}]`);
  }

  /** @returns {HTMLElement} */
  form() {
    const labels = [...this.fields].map(([name, field]) => make('label', { class: 'small' }, `${this.labels.get(name)} `, field));
    return make('div', { class: 'row' }, ...labels);
  }

  /** @returns {Record<string, ort.Tensor>} */
  feeds() {
    return Object.fromEntries(this.inputs.map((input) => [input.name, this.tensor(input)]));
  }

  /** @param {TensorValueMetadata} input @returns {ort.Tensor} */
  tensor({ name, type, shape }) {
    const dims = shape.map((dim, axis) => (typeof dim === 'number' ? dim : Number(this.fields.get(this.key(name, dim, axis))?.value)));
    const size = dims.reduce((product, dim) => product * dim, 1);
    if (type === 'string') return new ort.Tensor('string', new Array(size).fill('text'), dims);
    const zeros = () => /** @type {any} */ (new ort.Tensor(type, empty(type, size), dims));
    const tensor = zeros();
    for (let i = 0; i < tensor.data.length; i++) tensor.data[i] = value(type, name);
    return tensor;
  }
}

/** A default size for a free dim. @param {string} name @param {string} input */
function guess(name, input) {
  if (/past|cache/i.test(name)) return 0;
  if (/seq|len|time|tokens/i.test(name)) return 16;
  if (/height|width/i.test(name)) return 224;
  return /^input\[1\]$/.test(name) && input === 'input' ? 576 : 1;
}

/** @param {string} type @param {number} size */
function empty(type, size) {
  if (type === 'int64') return new BigInt64Array(size);
  if (type === 'uint64') return new BigUint64Array(size);
  if (type === 'float16') return new Uint16Array(size);
  if (type === 'int4' || type === 'uint4') return new Uint8Array(Math.ceil(size / 2));
  return /** @type {any} */ (new Array(size).fill(0));
}

/** A plausible element: 1 for a mask, 16000 for a sampling rate, a small index. @param {string} type @param {string} name */
function value(type, name) {
  if (type === 'int64' || type === 'uint64') return name === 'sr' ? 16000n : BigInt(/mask/.test(name) ? 1 : /type/.test(name) ? 0 : Math.floor(64 * Math.random()));
  if (type === 'bool') return 1;
  if (type.startsWith('float')) return 2 * Math.random() - 1;
  return Math.floor(64 * Math.random());
}
