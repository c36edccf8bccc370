// The executor for a page's own Pyodide (pyruntime/pyodide/session.py). Arguments and results are plain data and bytes; errors are returned
// as payloads. Work on the GPU returns promises, which Python waits for where it can.

import { unpackBits } from './common/elements.js';
import { andThen } from './common/maybe_promise.js';
import { NoAdapter, toPayload } from './common/errors.js';
import { acquireGpu, whyNoGpu } from './gpu/device.js';
import { joinedAdapters } from './run/joined_adapters.js';
import { Executor } from './run/executor.js';
import { pythonParts } from './run/python_parts.js';
import { mergedWeight } from './worker/models/merged_weights.js';
import { read as statesOf, write } from './worker/models/state_values.js';
import { codeFeatures } from './worker/wasm_features.js';

/** @import { WireTensor, WireValue } from './common/protocol.js' */
/** A tensor in the engine's storage layout. @typedef {{ type: string, dims: number[], data: Uint8Array | string[] }} Stored */
/** Runs a host step, with JSON in and out; "": Python failed. @typedef {(id: number, inputs: string, symbols: string) => string} RunStep */

const failed = (/** @type {unknown} */ error) => ({ error: JSON.stringify(toPayload(error)) });

/** The value of an action, or its error as JSON; if the action returns a promise, a promise of this. @template T @param {() => T} action */
function attempt(action) {
  try {
    const value = action();
    return value instanceof Promise ? value.then((found) => ({ value: found }), failed) : { value };
  } catch (error) {
    return failed(error);
  }
}

/** Describes the GPU as JSON: { adapter } or { whyNot }. @param {number} seconds to wait for it */
export async function describeGpu(seconds) {
  const gpu = await acquireGpu(seconds);
  return JSON.stringify(gpu ? { adapter: gpu.adapter } : { whyNot: whyNoGpu });
}

/**
 * @param {string} header @param {Uint8Array} blob @param {import('./run/environment.js').ReadFile} read @param {RunStep} step
 * @param {string} parts JSON: of providers that users add @param {import('./run/python_parts.js').BindInPython} bind
 * @param {number} memoryLimit 4 GiB or more: no limit @param {number} gpuTimeout in seconds; 0: without the GPU
 */
export function open(header, blob, read, step, parts, bind, memoryLimit, gpuTimeout) {
  /** @type {import('./run/environment.js').HostSteps} */
  const python = {
    host: (_, { id }, inputs, env) => JSON.parse(step(id, JSON.stringify(inputs), JSON.stringify(Object.fromEntries(env)))),
  };
  const limit = memoryLimit >= 2 ** 32 ? Infinity : memoryLimit;
  const program = { header: JSON.parse(header), blob, python: null, parts: pythonParts(JSON.parse(parts), bind) };
  if (!gpuTimeout) return attempt(() => Executor.createNow(program, read, python, limit));
  return attempt(async () => {
    const gpu = await acquireGpu(gpuTimeout);
    if (!gpu) throw new NoAdapter(whyNoGpu);
    return Executor.create(program, read, python, { shared: false, gpu, gpuTimeout, memoryLimit: limit });
  });
}

/** The last run of each executor on the GPU: they take turns. @type {WeakMap<Executor, Promise<unknown>>} */
const queues = new WeakMap();

/** As `run`, after the runs before. @type {(...given: Parameters<typeof run>) => Promise<unknown>} */
export function runInTurn(...given) {
  const [executor] = given;
  const done = (queues.get(executor) ?? Promise.resolve()).then(() => run(...given));
  queues.set(executor, done);
  return done;
}

/**
 * @param {Executor} executor @param {Record<string, WireValue>} feeds @param {string[]} names of outputs
 * @param {string[]} changing names of the steps that change states
 */
export function run(executor, feeds, names, changing) {
  Object.assign(executor, { changing: new Set(changing), hasChangedStates: false });
  const fetches = Object.fromEntries(names.map((name) => [name, null]));
  const inOrder = (/** @type {Record<string, WireTensor | WireTensor[] | null>} */ found) => names.map((name) => {
    const value = found[name];
    return Array.isArray(value) ? value.map(stored) : value && stored(value);
  });
  const answer = attempt(() => andThen(executor.run(feeds, fetches), inOrder));
  return andThen(answer, (found) => ({ ...found, hasChangedStates: executor.hasChangedStates }));
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
 * @param {string} described JSON: rowsA, rowsB, hasMagnitudes, types of the model's inputs, and adapters with types and shapes of their tensors
 * @param {Uint8Array[]} data of all tensors, in the same order
 */
export function join(described, data) {
  return attempt(() => {
    const { types, active, ...rows } = JSON.parse(described);
    let n = 0;
    for (const one of active) one.tensors = Object.fromEntries(one.tensors.map((/** @type {any} */ [name, dtype, shape]) => [name, { dtype, shape, bytes: data[n++] }]));
    return Object.entries(joinedAdapters(rows, types, active));
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
