// The states of a session: weights that its runs change. One executor at a time has their values.
// Twin of pyruntime/training/session/state_values.py.

import { SessionFailed } from '../../common/errors.js';
import { fromGpuStorage } from '../../gpu/storage.js';
import { MAIN } from '../../runtime/output_paths.js';

/** @import { Header, TensorValue } from '../../common/program.js' */
/** @import { Executor } from '../../run/executor.js' */
/** Bytes by name of the state. @typedef {Record<string, Uint8Array>} Values */
/** @template T @typedef {import('../../common/maybe_promise.js').MaybePromise<T>} MaybePromise */

export class StateValues {
  /** The executor that has the current values. @type {Executor | null} */
  holder = null;
  /** Values without those that are as at the start. @type {Values} */
  kept = {};
  isCurrent = true; // whether `kept` has the holder's values, so that a fault of the next step loses none
  /** An executor whose values a step has changed in part. @type {Executor | null} */
  spoiled = null;
  /** Why there are no values that belong to one step. */
  lost = '';

  /**
   * Runs an executor for these outputs.
   * @template T @param {Executor} executor @param {string[]} names @param {() => MaybePromise<T>} run @returns {Promise<T>}
   */
  async during(executor, names, run) {
    await this.enter(executor);
    executor.changing = changing(executor.header, names);
    executor.hasChangedStates = false;
    try {
      const results = await run();
      if (executor.hasChangedStates && this.isCurrent) this.dropKept(executor);
      return results;
    } catch (error) {
      if (executor.hasChangedStates) this.spoil(executor, `a step ended in the middle: ${/** @type {Error} */ (error).message}`);
      throw error;
    }
  }

  /** `kept` has old values of the executor. @param {Executor} executor */
  dropKept(executor) {
    this.isCurrent = false;
    this.kept = Object.fromEntries(Object.entries(this.kept).filter(([name]) => !Object.hasOwn(states(executor), name)));
  }

  /** A step has changed values of the executor in part. @param {Executor} executor @param {string} why */
  spoil(executor, why) {
    if (!this.isCurrent) this.lose(why);
    else Object.assign(this, { holder: null, spoiled: executor });
  }

  /** Gives an executor the current values. @param {Executor} executor */
  async enter(executor) {
    this.requireValues();
    if (this.holder === executor) return;
    if (this.holder) await this.leave();
    const rest = Object.entries(states(executor)).filter(([name]) => !Object.hasOwn(this.kept, name));
    const zeros = new Set(executor.header.constants.flatMap((constant) => ('zeros' in constant ? constant.buffer : [])));
    if (executor === this.spoiled && rest.some(([, { buffer }]) => !zeros.has(buffer))) {
      this.lose('the first step ended in the middle');
      this.requireValues();
    }
    for (const [, value] of rest) if (zeros.has(value.buffer)) put(executor, value, null);
    write(executor, this.kept);
    Object.assign(this, { holder: executor, isCurrent: true, spoiled: null });
  }

  /** Takes the values from the executor that has them, which is about to lose its memory. */
  async leave() {
    const { holder } = this;
    if (!holder) return;
    this.kept = { ...this.kept, ...await read(holder) };
    this.holder = null;
  }

  /** An executor is gone. @param {Executor} executor */
  drop(executor) {
    if (this.holder !== executor) return;
    this.holder = null;
    if (this.isCurrent) return;
    if (this.isOnGpu(executor)) this.lose('the memory of the GPU that had them is gone');
    else this.kept = { ...this.kept, .../** @type {Values} */ (read(executor)) };
  }

  /** Whether values cannot be read at once. @param {Executor | null} [executor] */
  isOnGpu(executor = this.holder) {
    return executor !== null && Object.values(states(executor)).some(({ buffer }) => executor.plan.isOnGpu(buffer));
  }

  /** @param {string} why */
  lose(why) {
    this.lost ||= why;
  }

  /** Copies of the current values, as far as they are not as at the start. @returns {Promise<Values>} */
  async read() {
    this.requireValues();
    return { ...this.kept, ...this.holder ? await read(this.holder) : {} };
  }

  /** Replaces some values. @param {Values} values */
  update(values) {
    this.requireValues();
    if (this.holder) write(this.holder, values);
    this.kept = { ...this.kept, ...values };
  }

  /** Replaces all values; those that are not given become zeros. @param {Values} values */
  replace(values) {
    Object.assign(this, { holder: null, kept: values, spoiled: null, lost: '' });
  }

  requireValues() {
    if (this.lost) throw new SessionFailed(`the weights are lost: ${this.lost}`, { hint: 'load a checkpoint, or create the session again' });
  }
}

/** @param {Executor} executor @returns {Record<string, TensorValue>} */
const states = ({ header }) => header.states ?? {};

/** Names of the steps that change states in a run for these outputs. @param {Header} header @param {string[]} names */
function changing({ outputs, blocks }, names) {
  const found = new Set(outputs.flatMap(({ name, updates }) => (names.includes(name) ? updates ?? [] : [])));
  const updates = (/** @type {import('../../common/program.js').Call} */ call) => call.updates?.some((buffer) => found.has(buffer));
  return new Set(blocks[MAIN].steps.flatMap((step) => ('calls' in step && step.calls.some(updates) ? [step.fn] : [])));
}

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
    await device.read(Math.ceil(size / 4) * 4, copy, (/** @type {ArrayBuffer} */ bytes) => fromGpuStorage(new Uint8Array(bytes, 0, size), dtype, found[name]));
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
