// What a run feeds for its adapters. pyruntime/native/sessions/adapters.py is its twin.

import { InvalidInput } from '../../common/errors.js';
import { floatsOf, halfOf } from '../../common/half_values.js';

/** @import { AdaptersInfo, AdapterEntry, AdapterFed } from '../../common/protocol.js' */
/** @import { Adapter } from './adapter_file.js' */
/** Names, or weights by name. @typedef {string | readonly string[] | Readonly<Record<string, number>>} Active */
/** @typedef {{ data: Uint8Array | Float32Array | Uint16Array, dims: number[], type: string }} Fed */

const [ALL_A, ALL_B] = ['adapters:A', 'adapters:B']; // pyruntime/learning/adapters/serving.py
export const RANK = 'adapters:rank';
const KEPT = 8; // combinations of adapters whose matrices are kept
const FLOATS = ['float16', 'bfloat16', 'float32', 'float64'];

export class Adapters {
  /** @param {Record<string, Adapter>} files @param {AdaptersInfo} info @param {Record<string, string | null>} types of the model's inputs */
  constructor(files, info, types) {
    this.files = files;
    this.info = info;
    this.types = types;
    /** @type {Map<string, Record<string, Fed>>} */
    this.kept = new Map();
  }

  /** The largest rank of a single adapter. */
  get rank() {
    return Math.max(0, ...Object.values(this.info.places).map(rankOf));
  }

  /** @param {Active} [active] @returns {Record<string, Fed>} by name of the input */
  feeds(active = []) {
    const weights = this.weights(active);
    const key = JSON.stringify(weights);
    const found = this.kept.get(key) ?? this.joined(weights);
    this.kept.delete(key);
    this.kept.set(key, found); // the last that was used is the last
    if (this.kept.size > KEPT) this.kept.delete(/** @type {string} */ (this.kept.keys().next().value));
    return found;
  }

  /** @param {Active} active @returns {[string, number][]} */
  weights(active) {
    const named = typeof active === 'string' ? [active] : active;
    /** @type {[string, number][]} */
    const weights = Array.isArray(named) ? named.map((name) => [name, 1]) : Object.entries(/** @type {Record<string, number>} */ (named ?? {}));
    for (const [name, weight] of weights) {
      const known = Object.keys(this.files).join(', ');
      if (!Object.hasOwn(this.files, name)) throw new InvalidInput(`the session has no adapter "${name}"`, { hint: `its option adapters names ${known}` });
      if (typeof weight !== 'number' || !Number.isFinite(weight)) throw new InvalidInput(`the weight of adapter "${name}" cannot be ${weight}`, { hint: 'give a number' });
    }
    return weights;
  }

  /** @param {[string, number][]} weights @returns {Record<string, Fed>} */
  joined(weights) {
    const { rowsA, defaults, places } = this.info;
    const found = Object.fromEntries(Object.entries(defaults).map(([name, { dtype, dims, data }]) => [name, tensorOf(fromBase64(data), dtype, dims)]));
    if (rowsA) Object.assign(found, this.stacked(weights));
    /** @type {Record<string, { one: AdapterFed, name: string, weight: number }[]>} */
    const fed = {};
    for (const [name, weight] of weights) for (const one of places[name].fed) (fed[one.input] ??= []).push({ one, name, weight });
    for (const [input, parts] of Object.entries(fed)) found[input] = this.fed(input, parts);
    return found;
  }

  /** The two matrices with all modules as rows, and the ranks of the adapters side by side. @param {[string, number][]} weights */
  stacked(weights) {
    const { rowsA, rowsB, places } = this.info;
    const columns = weights.reduce((sum, [name]) => sum + rankOf(places[name]), 0);
    const [a, b] = [rowsA, rowsB].map((rows) => new Float32Array(rows * columns));
    let first = 0;
    for (const [name, weight] of weights) {
      for (const entry of places[name].entries) this.place(entry, name, weight, a, b, columns, first);
      first += rankOf(places[name]);
    }
    return { [ALL_A]: tensorOf(a, 'float32', [rowsA, columns]), [ALL_B]: tensorOf(b, 'float32', [rowsB, columns]) };
  }

  /**
   * @param {AdapterEntry} entry @param {string} name @param {number} weight @param {Float32Array} a @param {Float32Array} b
   * @param {number} columns @param {number} first column
   */
  place({ a: nameA, b: nameB, first_a: firstA, first_b: firstB, rows_a: rowsA, rows_b: rowsB, rank, is_peft: isPeft, scale }, name, weight, a, b, columns, first) {
    const { tensors } = this.files[name];
    const [ownA, ownB] = [nameA, nameB].map((one) => floatsOf(tensors[one].bytes, tensors[one].dtype));
    const factor = Math.fround(scale * weight);
    for (let r = 0; r < rank; r++) {
      for (let k = 0; k < rowsA; k++) a[(firstA + k) * columns + first + r] = ownA[isPeft ? r * rowsA + k : k * rank + r];
      for (let n = 0; n < rowsB; n++) b[(firstB + n) * columns + first + r] = factor * ownB[isPeft ? n * rank + r : r * rowsB + n];
    }
  }

  /** The tensor for an input of the model, of all active adapters along the axis of the rank. @param {string} input @param {{ one: AdapterFed, name: string, weight: number }[]} parts */
  fed(input, parts) {
    const [{ one: { axis, tensor }, name }] = parts;
    const { dtype, shape, bytes } = this.files[name].tensors[tensor];
    const type = this.types[input] ?? dtype;
    if (axis < 0 || !FLOATS.includes(dtype)) {
      if (parts.length > 1) throw new InvalidInput(`several active adapters have a tensor for input "${input}"`, { hint: 'activate one' });
      return tensorOf(bytes.slice(), dtype, shape);
    }
    const matrices = parts.map((part) => this.matrix(part));
    const joined = axis ? besideEachOther(matrices) : belowEachOther(matrices);
    return tensorOf(type === 'float16' ? Uint16Array.from(new Uint32Array(joined.data.buffer), halfOf) : joined.data, type, [joined.rows, joined.columns]);
  }

  /** @param {{ one: AdapterFed, name: string, weight: number }} part @returns {Matrix} */
  matrix({ one: { tensor, axis, is_transposed: isTransposed, scale }, name, weight }) {
    const { dtype, shape, bytes } = this.files[name].tensors[tensor];
    const own = floatsOf(bytes, dtype);
    const [rows, columns] = isTransposed ? [shape[1], shape[0]] : shape;
    const factor = Math.fround(axis ? scale : scale * weight);
    const at = (/** @type {number} */ i) => (isTransposed ? (i % columns) * rows + Math.floor(i / columns) : i);
    return { rows, columns, data: Float32Array.from(own, (_, i) => own[at(i)] * factor) };
  }
}

/** @typedef {{ rows: number, columns: number, data: Float32Array }} Matrix */

/** @param {{ entries: AdapterEntry[] }} places */
const rankOf = ({ entries }) => Math.max(0, ...entries.map(({ rank }) => rank));

/** @param {Matrix[]} matrices @returns {Matrix} */
function belowEachOther(matrices) {
  const data = new Float32Array(matrices.reduce((sum, one) => sum + one.data.length, 0));
  let at = 0;
  for (const one of matrices) {
    data.set(one.data, at);
    at += one.data.length;
  }
  return { rows: matrices.reduce((sum, { rows }) => sum + rows, 0), columns: matrices[0].columns, data };
}

/** @param {Matrix[]} matrices @returns {Matrix} */
function besideEachOther(matrices) {
  const [{ rows }] = matrices;
  const columns = matrices.reduce((sum, one) => sum + one.columns, 0);
  const data = new Float32Array(rows * columns);
  let first = 0;
  for (const one of matrices) {
    for (let row = 0; row < rows; row++) data.set(one.data.subarray(row * one.columns, (row + 1) * one.columns), row * columns + first);
    first += one.columns;
  }
  return { rows, columns, data };
}

/** @param {Fed['data']} data @param {string} type @param {number[]} dims @returns {Fed} */
const tensorOf = (data, type, dims) => ({ data, type, dims });

/** @param {string} text */
const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
