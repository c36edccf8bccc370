// Joins the matrices of the adapters of a run. Twin of pyruntime/native/sessions/adapters.py.

import { InvalidInput } from '../common/errors.js';
import { floatsIn, floatsOf } from '../common/half_values.js';
import { ALL_A, ALL_B, ALL_MAGNITUDES, NO_MAGNITUDE, rankOf } from '../runtime/adapter_places.js';

/** @import { Entry, Fed as Place, Places } from '../runtime/adapter_places.js' */
/** @typedef {{ dtype: string, shape: number[], bytes: Uint8Array }} Stored a tensor in a file */
/** An adapter of a run. @typedef {{ tensors: Record<string, Stored>, places: Places, weight: number }} Active */
/** @typedef {{ data: Uint8Array | Float32Array | Float64Array | Uint16Array, dims: number[], type: string }} Fed */
/** A tensor that is fed to an input of the model. @typedef {{ fed: Place, one: Active }} Part */
/** @typedef {{ rows: number, columns: number, data: Float32Array }} Matrix */
/** Numbers of rows of the two matrices, and whether the graph takes magnitudes. @typedef {{ rowsA: number, rowsB: number, hasMagnitudes?: boolean }} Rows */

const FLOATS = ['float16', 'bfloat16', 'float32', 'float64'];

/**
 * @param {Rows} rows @param {Record<string, string | null>} types of the model's inputs
 * @param {Active[]} active @returns {Record<string, Fed>} by name of the input
 */
export function joinedAdapters(rows, types, active) {
  const found = rows.rowsA ? stacked(rows, active) : {};
  /** @type {Record<string, Part[]>} */
  const parts = {};
  for (const one of active) for (const fed of one.places.fed) (parts[fed.input] ??= []).push({ fed, one });
  for (const [input, of] of Object.entries(parts)) found[input] = ownInput(input, of, types);
  return found;
}

/**
 * Inputs of a run: one matrix of the A and one of the B of all modules. A module has rows of its own, each active adapter
 * has as many columns as its rank. If the graph takes them, also the magnitudes of DoRA, one for each row of B.
 * @param {Rows} rows @param {Active[]} active @returns {Record<string, Fed>}
 */
function stacked({ rowsA, rowsB, hasMagnitudes }, active) {
  const columns = active.reduce((sum, { places }) => sum + rankOf(places.entries), 0);
  const [a, b] = [rowsA, rowsB].map((rows) => new Float32Array(rows * columns));
  const magnitudes = new Float32Array(rowsB).fill(NO_MAGNITUDE);
  let first = 0;
  for (const one of active) {
    for (const entry of one.places.entries) {
      place(entry, one, a, b, columns, first);
      const own = one.tensors[entry.magnitudes];
      if (own) magnitudes.set(floatsOf(own.bytes, own.dtype), entry.firstB);
    }
    first += rankOf(one.places.entries);
  }
  return {
    [ALL_A]: { data: a, type: 'float32', dims: [rowsA, columns] }, [ALL_B]: { data: b, type: 'float32', dims: [rowsB, columns] },
    ...(hasMagnitudes ? { [ALL_MAGNITUDES]: { data: magnitudes, type: 'float32', dims: [rowsB] } } : {}),
  };
}

/**
 * @param {Entry} entry @param {Active} one @param {Float32Array} a @param {Float32Array} b
 * @param {number} columns @param {number} first column
 */
function place({ a: nameA, b: nameB, firstA, firstB, rowsA, rowsB, rank, isPeft, scale }, { tensors, weight }, a, b, columns, first) {
  const [ownA, ownB] = [nameA, nameB].map((name) => floatsOf(tensors[name].bytes, tensors[name].dtype));
  const factor = Math.fround(scale * weight);
  for (let r = 0; r < rank; r++) {
    for (let k = 0; k < rowsA; k++) a[(firstA + k) * columns + first + r] = ownA[isPeft ? r * rowsA + k : k * rank + r];
    for (let n = 0; n < rowsB; n++) b[(firstB + n) * columns + first + r] = factor * ownB[isPeft ? n * rank + r : r * rowsB + n];
  }
}

/** An input of the model: the tensors of all active adapters along the axis of the rank. @param {string} input @param {Part[]} parts @param {Record<string, string | null>} types @returns {Fed} */
function ownInput(input, parts, types) {
  const [{ fed: { axis, tensor }, one: { tensors } }] = parts;
  const { dtype, shape, bytes } = tensors[tensor];
  const type = types[input] ?? dtype;
  if (axis < 0 || !FLOATS.includes(dtype)) {
    if (parts.length > 1) throw new InvalidInput(`several active adapters have a tensor for input "${input}"`, { hint: 'activate one' });
    return { data: bytes.slice(), type: dtype, dims: shape };
  }
  const matrices = parts.map(matrix);
  const { data, rows, columns } = axis ? besideEachOther(matrices) : belowEachOther(matrices);
  return { data: floatsIn(type, data), type, dims: [rows, columns] };
}

/** @param {Part} part @returns {Matrix} */
function matrix({ fed: { tensor, axis, isTransposed, scale }, one: { tensors, weight } }) {
  const { dtype, shape, bytes } = tensors[tensor];
  const own = floatsOf(bytes, dtype);
  const [rows, columns] = isTransposed ? [shape[1], shape[0]] : shape;
  const factor = Math.fround(axis ? scale : scale * weight);
  const at = (/** @type {number} */ i) => (isTransposed ? (i % columns) * rows + Math.floor(i / columns) : i);
  return { rows, columns, data: Float32Array.from(own, (_, i) => own[at(i)] * factor) };
}

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
