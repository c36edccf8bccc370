// The inputs of a model: sizes of its free dims, and where the elements come from: made up, from a file, from a text, or typed.

import * as ort from 'pyruntime';
import { make, messageOf } from '../common.js';
import { elements } from './elements.js';
import { ACCEPTED, imageLayout, readInput, SCALES, shapeFor } from './input_files.js';
import { textField } from './text_field.js';

/** @typedef {import('pyruntime').InferenceSession.TensorValueMetadata} TensorValueMetadata */
/** @typedef {import('./input_files.js').Loaded} Loaded */

const LARGEST = 2 ** 28; // elements of an input: 1 GiB of floats

export class Inputs {
  /** @param {ort.InferenceSession} session */
  constructor(session) {
    this.inputs = session.inputMetadata.filter((value) => value.isTensor);
    /** By name of a dim. @type {Map<string, HTMLInputElement>} */
    this.fields = new Map();
    /** By name: the dim's axis and input. @type {Map<string, string>} */
    this.labels = new Map();
    /** What visitors gave, by input. @type {Map<string, Loaded>} */
    this.loaded = new Map();
    /** What a row says of its elements, by input. @type {Map<string, HTMLElement>} */
    this.told = new Map();
    this.text = textField(this.inputs, (filled) => this.takeTokens(filled));
    for (const { name, shape } of this.inputs) shape.forEach((dim, axis) => this.addField(name, dim, axis));
  }

  /** @param {string} input @param {number | string} dim @param {number} axis */
  addField(input, dim, axis) {
    const key = this.key(input, dim, axis);
    if (typeof dim === 'number' || this.fields.has(key)) return;
    this.labels.set(key, `${dim ? `Size ${dim} (axis ${axis} of ${input})` : `Size of axis ${axis} of ${input}`}`);
    this.fields.set(key, /** @type {HTMLInputElement} */ (make('input', { type: 'number', min: 0, step: 1, value: guess(key, input) })));
  }

  /** @param {string} input @param {number | string} dim @param {number} axis */
  key(input, dim, axis) {
    return String(dim || `${input}[${axis}]`);
  }

  /** @returns {HTMLElement} */
  form() {
    const labels = [...this.fields].map(([name, field]) => make('label', { class: 'small' }, `${this.labels.get(name)} `, field));
    const caches = this.inputs.filter((input) => this.isCache(input));
    const rows = this.inputs.filter((input) => !this.isCache(input)).map((input) => this.row(input));
    if (caches.length) rows.push(make('details', { class: 'small' }, make('summary', {}, `Inputs of the cache (${caches.length})`), ...caches.map((input) => this.row(input))));
    return make('div', {}, ...(this.text ? [this.text.node] : []), make('div', { class: 'row dims' }, ...labels), make('div', { class: 'inputs' }, ...rows));
  }

  /** @param {TensorValueMetadata} input */
  isCache(input) {
    return this.text?.found.roles.get(input) === 'cache';
  }

  /** An input's row: its name, and a file in place of made-up numbers. @param {TensorValueMetadata} input */
  row(input) {
    const { name, type, shape } = input;
    const told = make('span', { class: 'soft small', role: 'status' }, 'random');
    this.told.set(name, told);
    const file = /** @type {HTMLInputElement} */ (make('input', { type: 'file', accept: ACCEPTED, 'aria-label': `A file for ${name}` }));
    const scale = /** @type {HTMLSelectElement} */ (make('select', { 'aria-label': `Range of pixels for ${name}` }, ...Object.keys(SCALES).map((text) => make('option', {}, text))));
    const load = async () => {
      const [chosen] = file.files ?? [];
      if (!chosen) return;
      try {
        this.take(input, await readInput(chosen, { type, dims: shape.map((dim) => (typeof dim === 'number' ? dim : null)), scale: scale.value }));
        told.textContent = `${chosen.name} as [${this.loaded.get(name)?.dims.join(', ')}]`;
      } catch (error) {
        this.loaded.delete(name);
        told.textContent = messageOf(error);
      }
    };
    file.addEventListener('change', load);
    scale.addEventListener('change', load);
    const isImage = !this.isCache(input) && imageLayout(shape.map((dim) => (typeof dim === 'number' ? dim : null)));
    return make('div', { class: 'row input', 'data-input': name }, make('code', {}, name), make('label', { class: 'button small' }, isImage ? 'Image or file' : 'File', file), ...(isImage ? [scale] : []), this.typed(input, told), told);
  }

  /** A field for few elements, for text or numbers. @param {TensorValueMetadata} input @param {HTMLElement} told */
  typed(input, told) {
    const { name, type, shape } = input;
    const field = /** @type {HTMLInputElement} */ (make('input', { type: 'text', class: 'typed', placeholder: type === 'string' ? 'text' : 'or numbers: 1, 2, 3', 'aria-label': `Elements of ${name}` }));
    field.addEventListener('change', () => {
      const parts = type === 'string' ? [field.value] : field.value.split(/[\s,;]+/).filter(Boolean).map(Number);
      this.loaded.delete(name);
      if (!parts.length || !field.value) return void (told.textContent = 'random');
      if (parts.some((part) => Number.isNaN(part))) return void (told.textContent = 'These are no numbers.');
      const dims = shapeFor(parts.length, shape.map((dim) => (typeof dim === 'number' ? dim : null)));
      if (dims.reduce((product, dim) => product * dim, 1) !== parts.length) return void (told.textContent = `The input is [${shape.join(', ')}].`);
      this.take(input, { data: parts, dims });
      told.textContent = `typed, as [${dims.join(', ')}]`;
    });
    return field;
  }

  /** Keeps what a visitor gave, and sets the sizes of its dims. @param {import('./token_inputs.js').Input} input @param {Loaded} loaded */
  take({ name, shape }, loaded) {
    this.loaded.set(name, loaded);
    shape.forEach((dim, axis) => {
      const field = typeof dim === 'number' ? null : this.fields.get(this.key(name, dim, axis));
      if (field) field.value = String(loaded.dims[axis]);
    });
  }

  /** Takes the inputs of a text's tokens; those of an earlier text are random again. @param {Map<string, Loaded>} filled */
  takeTokens(filled) {
    for (const input of this.text?.found.roles.keys() ?? []) {
      const loaded = filled.get(input.name);
      const told = this.told.get(input.name);
      if (loaded) this.take(input, loaded);
      else this.loaded.delete(input.name);
      if (told) told.textContent = loaded ? `from the text, as [${loaded.dims.join(', ')}]` : 'random';
    }
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
    const given = this.loaded.get(name);
    if (given && given.data.length !== size) throw new RangeError(`${name} has ${given.data.length} elements from you, and its sizes are [${dims.join(', ')}]`);
    return /** @type {any} */ (new ort.Tensor(/** @type {any} */ (type), /** @type {any} */ (elements(type, size, name, given?.data)), dims));
  }
}

/** A default size for a free dim. @param {string} name @param {string} input */
function guess(name, input) {
  if (/past|cache/i.test(name)) return 0;
  if (/seq|len|time|tokens/i.test(name)) return 16;
  if (/height|width/i.test(name)) return 224;
  return /^input\[1\]$/.test(name) && input === 'input' ? 576 : 1;
}
