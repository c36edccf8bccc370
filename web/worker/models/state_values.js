// The states of a session: weights that its runs change. pyruntime/runtime/state_table.py decides which executor has their values.

import { fromGpuStorage } from '../../gpu/storage.js';
import { changingSteps, StateTable, statesOf } from '../../runtime/state_table.js';

/** @import { TensorValue } from '../../common/program.js' */
/** @import { Executor } from '../../run/executor.js' */
/** Bytes by name of the state. @typedef {Record<string, Uint8Array>} Values */
/** @template T @typedef {import('../../common/maybe_promise.js').MaybePromise<T>} MaybePromise */

export class StateValues {
  table = new StateTable();

  /** The executor that has the current values. */
  get holder() {
    return /** @type {Executor | null} */ (this.table.holder);
  }

  /**
   * Runs an executor for these outputs.
   * @template T @param {Executor} executor @param {string[]} names @param {() => MaybePromise<T>} run @returns {Promise<T>}
   */
  async during(executor, names, run) {
    await this.enter(executor);
    executor.changing = changingSteps(executor.header, names);
    executor.hasChangedStates = false;
    try {
      const results = await run();
      this.table.completed(executor);
      return results;
    } catch (error) {
      this.table.failed(executor, /** @type {Error} */ (error).message);
      throw error;
    }
  }

  /** Gives an executor the current values. @param {Executor} executor */
  async enter(executor) {
    this.table.require();
    if (this.holder === executor) return;
    await this.leave();
    for (const name of this.table.zerosFor(executor)) put(executor, states(executor)[name], null);
    write(executor, Object.fromEntries(this.table.kept));
    this.table.entered(executor);
  }

  /** Takes the values from the executor that has them, which is about to lose its memory. */
  async leave() {
    if (this.holder) this.table.left(new Map(Object.entries(this.table.isCurrent ? {} : await read(this.holder))));
  }

  /** An executor is gone. @param {Executor} executor */
  drop(executor) {
    if (this.holder !== executor) return;
    const isLost = !this.table.isCurrent && this.isOnGpu(executor);
    const values = this.table.isCurrent || isLost ? {} : /** @type {Values} */ (read(executor));
    this.table.left(new Map(Object.entries(values)));
    if (isLost) this.table.lose('the memory of the GPU that had them is gone');
  }

  /** Whether values cannot be read at once. @param {Executor | null} [executor] */
  isOnGpu(executor = this.holder) {
    return executor !== null && Object.values(states(executor)).some(({ buffer }) => executor.plan.isOnGpu(buffer));
  }

  /** Copies of the current values, as far as they are not as at the start. @returns {Promise<Values>} */
  async read() {
    this.table.require();
    return { ...Object.fromEntries(this.table.kept), ...this.holder ? await read(this.holder) : {} };
  }

  /** Replaces some values. @param {Values} values */
  update(values) {
    this.table.require();
    if (this.holder) write(this.holder, values);
    for (const [name, value] of Object.entries(values)) this.table.kept.set(name, value);
  }

  /** Replaces all values; those that are not given become zeros. @param {Values} values */
  replace(values) {
    this.table.replace(new Map(Object.entries(values)));
  }
}

/** @param {Executor} executor */
const states = ({ header }) => statesOf(header);

/** Copies of an executor's states. @param {Executor} executor @returns {MaybePromise<Values>} */
export function read(executor) {
  const entries = Object.entries(states(executor));
  const near = entries.filter(([, { buffer }]) => !executor.plan.isOnGpu(buffer));
  const found = Object.fromEntries(near.map(([name, { buffer }]) => [name, executor.bytes(executor.plan.root, buffer).slice()]));
  if (near.length === entries.length) return found;
  const far = entries.filter(([, { buffer }]) => executor.plan.isOnGpu(buffer));
  return readFromGpu(executor, far).then((values) => ({ ...found, ...values }));
}

/** @param {Executor} executor @param {[string, TensorValue][]} entries @returns {Promise<Values>} */
async function readFromGpu({ plan, gpu }, entries) {
  const { memory, gpu: device } = /** @type {any} */ (gpu);
  /** @type {Values} */
  const found = {};
  for (const [name, { buffer, dtype }] of entries) {
    const size = plan.size(plan.root.env, buffer);
    if (!size) continue;
    const copy = (/** @type {GPUBuffer} */ staging) => {
      memory.copyOut(memory.locate(plan.span(plan.root, buffer).address, size), staging);
      memory.flush();
    };
    found[name] = new Uint8Array(size);
    const use = (/** @type {ArrayBuffer} */ bytes) => fromGpuStorage(new Uint8Array(bytes, 0, size), dtype, found[name]);
    await device.read(Math.ceil(size / 4) * 4, copy, use, memory.pending); // whose errors say that a buffer could not be allocated
  }
  return found;
}

/** Writes an executor's states; other names are those of other Programs. @param {Executor} executor @param {Values} values */
export function write(executor, values) {
  const known = states(executor);
  for (const [name, bytes] of Object.entries(values)) if (Object.hasOwn(known, name)) put(executor, known[name], bytes);
}

/** @param {Executor} executor @param {TensorValue} value @param {Uint8Array | null} bytes null: zeros */
function put(executor, { buffer, dtype }, bytes) {
  const { plan, gpu } = executor;
  const data = bytes ?? new Uint8Array(plan.size(plan.root.env, buffer));
  if (plan.isOnGpu(buffer)) gpu?.memory.write(plan.span(plan.root, buffer).address, data, dtype);
  else executor.bytes(plan.root, buffer).set(data);
}
