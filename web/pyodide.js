// The executor for a page's own Pyodide (pyruntime/pyodide/session.py), where Python cannot wait for promises. Arguments
// and results are plain data and bytes; errors are returned as payloads.

import { unpackBits } from './common/elements.js';
import { toPayload } from './common/errors.js';
import { joinedAdapters } from './run/joined_adapters.js';
import { Executor } from './run/executor.js';
import { pythonParts } from './run/python_parts.js';
import { mergedWeight } from './worker/models/merged_weights.js';
import { read as statesOf, write } from './worker/models/state_values.js';
import { codeFeatures } from './worker/wasm_features.js';

/** @import { WireTensor, WireValue } from './common/protocol.js' */
/** A tensor in the engine's storage layout. @typedef {{ type: string, dims: number[], data: Uint8Array | string[] }} Stored */
/** Runs a host step, with JSON in and out; "": Python failed. @typedef {(id: number, inputs: string, symbols: string) => string} RunStep */

/** The value of an action, or its error as JSON. @template T @param {() => T} action */
function attempt(action) {
  try {
    return { value: action() };
  } catch (error) {
    return { error: JSON.stringify(toPayload(error)) };
  }
}

/**
 * @param {string} header @param {Uint8Array} blob @param {import('./run/environment.js').ReadFile} read @param {RunStep} step
 * @param {string} parts JSON: of providers that users add @param {import('./run/python_parts.js').BindInPython} bind
 * @param {number} memoryLimit 4 GiB or more: no limit
 */
export function open(header, blob, read, step, parts, bind, memoryLimit) {
  /** @type {import('./run/environment.js').HostSteps} */
  const python = {
    host: (_, { id }, inputs, env) => JSON.parse(step(id, JSON.stringify(inputs), JSON.stringify(Object.fromEntries(env)))),
  };
  const limit = memoryLimit >= 2 ** 32 ? Infinity : memoryLimit;
  const program = { header: JSON.parse(header), blob, python: null, parts: pythonParts(JSON.parse(parts), bind) };
  return attempt(() => Executor.createNow(program, read, python, limit));
}

/**
 * @param {Executor} executor @param {Record<string, WireValue>} feeds @param {string[]} names of outputs
 * @param {string[]} changing names of the steps that change states
 */
export function run(executor, feeds, names, changing) {
  Object.assign(executor, { changing: new Set(changing), hasChangedStates: false });
  const answer = attempt(() => {
    const fetches = Object.fromEntries(names.map((name) => [name, null]));
    const found = /** @type {Record<string, WireTensor | WireTensor[] | null>} */ (executor.run(feeds, fetches));
    return names.map((name) => (Array.isArray(found[name]) ? found[name].map(stored) : found[name] && stored(found[name])));
  });
  return { ...answer, hasChangedStates: executor.hasChangedStates };
}

/** For reports, as JSON: values of symbols, counts of plans, and figures of linear memory. @param {Executor} executor */
export function figures(executor) {
  const { env, plan } = executor;
  const { weights, peak, requested, arena } = executor.memoryReport();
  const top = plan.linearFigures.top - plan.root.place.arena.base;
  const { runs, planned } = plan.counts;
  return JSON.stringify({ env: Object.fromEntries(env), runs, planned, memory: { weights, peak, requested, top }, arena });
}

/** Copies of the states, in the header's order. @param {Executor} executor */
export const readStates = (executor) => attempt(() => Object.values(statesOf(executor)));

/** @param {Executor} executor @param {Record<string, Uint8Array>} values by name of the state */
export const writeStates = (executor, values) => attempt(() => write(executor, values));

/**
 * A weight with products of adapters added, in float32, or as it is in float64.
 * @param {string} merged JSON: its shape and the products (see mergedWeight) @param {string} dtype of the weight
 * @param {Uint8Array} weight @param {Record<string, Uint8Array>} values of adapters, by name
 */
export function merge(merged, dtype, weight, values) {
  return attempt(() => {
    const { shape, products } = JSON.parse(merged);
    const base = { start: 0, size: weight.length, name: '', data: '' };
    return mergedWeight({ base, shape, products }, dtype, undefined, values, () => weight, () => weight);
  });
}

/**
 * The matrices of the adapters of a run, by name of the input.
 * @param {string} described JSON: rowsA, rowsB, types of the model's inputs, and adapters with types and shapes of their tensors
 * @param {Uint8Array[]} data of all tensors, in the same order
 */
export function join(described, data) {
  return attempt(() => {
    const { rowsA, rowsB, types, active } = JSON.parse(described);
    let n = 0;
    for (const one of active) one.tensors = Object.fromEntries(one.tensors.map((/** @type {any} */ [name, dtype, shape]) => [name, { dtype, shape, bytes: data[n++] }]));
    return Object.entries(joinedAdapters({ rowsA, rowsB }, types, active));
  });
}

/** @param {WireTensor} tensor @returns {Stored} */
function stored({ type, dims, data }) {
  if (Array.isArray(data)) return { type, dims: [...dims], data };
  const { buffer, byteOffset, byteLength } = /** @type {import('./common/protocol.js').NumericData} */ (data);
  const bytes = new Uint8Array(buffer, byteOffset, byteLength);
  if (type !== 'int4' && type !== 'uint4') return { type, dims: [...dims], data: bytes };
  const wide = new Uint8Array(dims.reduce((product, dim) => product * dim, 1));
  unpackBits(bytes, 4, type === 'int4', wide);
  return { type, dims: [...dims], data: wide };
}

/** @param {Executor} executor */
export const release = (executor) => executor.release();

export { codeFeatures };
