// Runs the parts of a Program that providers have taken which users added (docs/extending.md#providers): on typed arrays,
// which are views of linear memory.

import { viewOf } from '../common/elements.js';
import { ExecutionError, PyRuntimeError, Terminated } from '../common/errors.js';
import { andThen } from '../common/maybe_promise.js';
import { evaluateAll } from '../common/dims.js';
import { buffersOf } from '../runtime/planner.js';

/** @template T @typedef {import('../common/maybe_promise.js').MaybePromise<T>} MaybePromise */
/** @import { Env } from '../common/dims.js' */
/** @import { HostStep, TensorValue } from '../common/program.js' */
/** @import { NumericData } from '../common/protocol.js' */
/** @import { Stop } from '../common/stop.js' */
/** @import { State } from '../runtime/states.js' */
/** @import { Executor } from './executor.js' */
/** @typedef {NumericData & { dims: number[] }} ArrayWithDims */
/** @typedef {() => unknown} Job */
/**
 * A part. nodes: labels of its nodes; bind: returns the job of a run, or a promise of it.
 * @typedef {{ provider: string, nodes: string[], bind: (inputs: ArrayWithDims[], outputs: ArrayWithDims[], env: Env) => unknown }} Part
 */
/** A job that was bound to arrays. buffer: of linear memory then; after: the state after the step. @typedef {{ buffer: ArrayBufferLike, job: Job, after: State }} Bound */
/** A provider's error. nodes: those that it ran together, with reasons. @typedef {ExecutionError & { left: { provider: string, nodes: Record<string, string> } }} ProviderError */

/** The parts of one Program, by number of the host step. */
export class ArrayParts {
  /** @param {Map<number, Part>} parts */
  constructor(parts) {
    this.parts = parts;
  }

  /** @param {number} id */
  has(id) {
    return this.parts.has(id);
  }

  /** @param {Executor} executor @param {HostStep} step @param {State} state @param {string} key @returns {MaybePromise<State>} */
  run(executor, step, state, key) {
    const part = /** @type {Part} */ (this.parts.get(step.id));
    const { prepared } = state.next.get(key) ?? {};
    const isBound = prepared?.buffer === executor.memory.bytes.buffer; // growth of memory replaces the buffer
    return andThen(isBound ? prepared : this.bind(part, executor, step, state, key), ({ job, after }) => (
      andThen(attempt(part, executor, job), () => after)));
  }

  /** @param {Part} part @param {Executor} executor @param {HostStep} step @param {State} state @param {string} key @returns {MaybePromise<Bound>} */
  bind(part, executor, { inputs, outputs, free }, state, key) {
    const { plan, memory } = executor;
    const made = plan.advance(state, key, (next) => plan.take(next, buffersOf(outputs)));
    const after = plan.advance(made, `${key}:free`, (next) => next.drop(free));
    const arrays = (/** @type {TensorValue[]} */ values) => values.map((value) => arrayOf(executor, made, value));
    const given = arrays(/** @type {TensorValue[]} */ (inputs.filter(Boolean)));
    const { buffer } = memory.bytes;
    const job = attempt(part, executor, () => part.bind(given, arrays(outputs), state.env));
    return andThen(job, (found) => {
      if (typeof found !== 'function') throw faultOf(part, new TypeError(`bind returned ${described(found)}, no function`));
      const bound = { buffer, job: /** @type {Job} */ (found), after };
      const transition = state.next.get(key);
      if (transition) transition.prepared = bound;
      return bound;
    });
  }
}

/** A tensor in linear memory, which fills its buffer; no copy. Values in a provider's own memory are empty. @param {Executor} executor @param {State} state @param {TensorValue} value @returns {ArrayWithDims} */
function arrayOf(executor, state, { buffer, dtype, dims }) {
  const bytes = executor.header.buffers[buffer].host ? new Uint8Array() : executor.bytes(state, buffer);
  return Object.assign(viewOf(bytes, dtype), { dims: evaluateAll(dims, state.env) });
}

/**
 * What a provider's function returns, or what its promise resolves to. Its errors become ExecutionErrors that name provider and node. A
 * stop ends the wait for a promise; then the memory is given up, because the provider may still write there.
 * @param {Pick<Part, 'provider' | 'nodes'>} part @param {Executor} executor @param {() => unknown} action @returns {MaybePromise<unknown>}
 */
export function attempt(part, executor, action) {
  try {
    const result = action();
    return isPromise(result) ? settled(Promise.resolve(result), executor).catch((error) => { throw faultOf(part, error); }) : result;
  } catch (error) {
    throw faultOf(part, error);
  }
}

/** @template T @param {Promise<T>} promise @param {Executor} executor @returns {Promise<T>} */
function settled(promise, { stop, memory }) {
  return orStopped(promise, stop).catch((error) => {
    if (error instanceof Terminated) memory.isLeft = true;
    throw error;
  });
}

/** Waits for a promise, or until the call is stopped. @template T @param {Promise<T>} promise @param {Stop | null} stop @returns {Promise<T>} */
export async function orStopped(promise, stop) {
  if (!stop) return promise;
  stop.check();
  const { signal } = stop.controller;
  let end = () => {};
  const stopped = new Promise((resolve) => {
    end = () => resolve(null);
    signal.addEventListener('abort', end);
  });
  try {
    return await Promise.race([promise, stopped.then(() => { throw new Terminated('it was stopped'); })]);
  } finally {
    signal.removeEventListener('abort', end);
  }
}

/** @param {unknown} value @returns {value is PromiseLike<unknown>} */
export const isPromise = (value) => typeof /** @type {{ then?: unknown } | null | undefined} */ (value)?.then === 'function';

/** @param {Pick<Part, 'provider' | 'nodes'>} part @param {unknown} error */
export function faultOf({ provider, nodes }, error) {
  if (error instanceof Terminated) return error;
  const [start, text] = [`provider "${provider}" failed: `, textOf(error)];
  const fault = new ExecutionError(text.startsWith(start) ? text : start + text, { node: nodes[0], cause: error }); // Python's begin so
  return Object.assign(fault, { left: { provider, nodes: Object.fromEntries(nodes.map((name) => [name, fault.detail])) } });
}

/** @param {unknown} error */
export const textOf = (error) => (error instanceof PyRuntimeError ? error.detail : error instanceof Error ? `${error.name}: ${error.message}` : String(error));

/** A value as messages show it. @param {unknown} value */
export function described(value) {
  if (typeof value === 'function') return 'a function';
  if (isPromise(value)) return 'a promise';
  if (typeof value === 'string') return `"${value}"`;
  return typeof value === 'object' && value ? `an object ${value.constructor?.name ?? ''}`.trim() : String(value);
}
