// Recovers from faults of the GPU (docs/design/sessions.md#recovery). pyruntime/runtime/recovery.py decides.

import { DeviceLost, OutOfMemory } from '../common/errors.js';
import { warn } from '../common/log.js';
import { acquireGpu } from '../gpu/device.js';
import { AGAIN, FAIL, FULL, LATE, LOST, NODES, RecoveryPlan, REFUSED, SESSION, textOfMoves } from '../runtime/recovery.js';
import { freeIdle } from './idle_models.js';

/** @import { Move } from '../runtime/recovery.js' */
/** @typedef {import('../gpu/device.js').Gpu} Gpu */
/** Nodes at fault, with reasons. @typedef {Record<string, string>} Nodes */
/**
 * The part of a session's model that recovery uses.
 * @typedef {object} RecoverableModel
 * @property {import('./compiler.js').Compiler} compiler
 * @property {import('./compiler.js').SessionHost} host
 * @property {Gpu | null} leftGpu the GPU that the model has left
 * @property {Move[]} moved what has left the GPU
 * @property {import('./states.js').SessionState} state
 * @property {import('./program_table.js').ProgramTable} table
 * @property {(change: () => unknown) => Promise<void>} change forgets all Programs, which `change` makes useless
 * @property {() => Promise<void>} prepare
 * @property {() => Promise<void>} saveStates
 */

/**
 * The result of `work`, which runs again after a fault if the plan of the shared runtime says so.
 * @template T @param {RecoverableModel} model @param {() => Promise<T>} work
 * @param {(gpu: Gpu) => unknown} [beforeRetry] refuses work that needs a lost device, or restores what the work has changed; gpu: on which it ran
 * @returns {Promise<T>}
 */
export async function runWithRecovery(model, work, beforeRetry = () => {}) {
  if (!model.host.gpu) {
    if (model.leftGpu) beforeRetry(model.leftGpu);
    return work();
  }
  const recovery = new Recovery(model);
  try {
    return await recovery.run(work, beforeRetry);
  } finally {
    if (recovery.plan.made.length) warn(textOfMoves(recovery.plan.made), model.host.logOptions);
  }
}

/** The recovery of one piece of work. */
class Recovery {
  /** @param {RecoverableModel} model */
  constructor(model) {
    const { named = [], fallback = true } = model.host;
    this.model = model;
    const { canCompile = true, hasFallback = false } = model.compiler;
    this.plan = new RecoveryPlan(fallback, canCompile, named, hasFallback);
    this.isCompiled = true;
  }

  /** @template T @param {() => Promise<T>} work @param {(gpu: Gpu) => unknown} beforeRetry @returns {Promise<T>} */
  async run(work, beforeRetry) {
    for (;;) {
      const gpu = /** @type {Gpu} */ (this.model.host.gpu ?? this.model.leftGpu);
      try {
        return await this.attempt(work);
      } catch (error) {
        if (!(await this.prepareRetry(error))) throw error;
      }
      await beforeRetry(gpu);
    }
  }

  /** @template T @param {() => Promise<T>} work */
  async attempt(work) {
    const { model } = this;
    model.host.gpu?.throwIfLost();
    if (!this.isCompiled) await model.prepare();
    this.isCompiled = true;
    return work();
  }

  /** Prepares another attempt, if one can help. @param {unknown} error @returns {Promise<boolean>} */
  async prepareRetry(error) {
    const { model } = this;
    const { state, host: { gpu } } = model;
    const { fault, nodes } = faultOf(error, gpu);
    if (!gpu || !fault) return false;
    const step = this.stepAfter(gpu, fault, nodes);
    if (step === FAIL) return this.giveUp(gpu, fault);
    state.enter('recovering');
    try {
      await freeGpu(model, fault);
      if (fault === FULL && step === AGAIN) while (freeIdle());
      const next = gpu.lost && step !== SESSION ? await acquireGpu(model.host.gpuTimeout) : gpu;
      if (!next && !this.plan.canLeave) {
        state.enter('failed');
        return false; // later work tries again to open the device
      }
      if (next) model.host = { ...model.host, gpu: next };
      if (step !== AGAIN || !next) await this.move(step === NODES && next ? nodes : {}, reasonOf(error));
    } catch (cause) {
      state.enter('failed');
      throw cause;
    }
    state.enter('running');
    return true;
  }

  /** @param {Gpu} gpu @param {string} fault @param {Nodes} nodes */
  stepAfter(gpu, fault, nodes) {
    const { fallback = true } = this.model.host;
    if (fault === LOST && !gpu.replaceable) return fallback && this.plan.hasFollowing ? SESSION : FAIL; // the page can open it, not the engine
    return this.plan.after(fault, nodes, this.model.moved);
  }

  /** From now on the model runs without the GPU, or without it for these nodes. @param {Nodes} nodes @param {string} reason */
  async move(nodes, reason) {
    const { model } = this;
    model.moved = this.plan.leave(nodes, reason, model.moved);
    if (!Object.keys(nodes).length) {
      model.leftGpu = model.host.gpu ?? null;
      model.host = { ...model.host, gpu: null };
    }
    this.isCompiled = false;
    await model.change(() => model.compiler.leaveGpu(nodes));
  }

  /** Work ends with the error of this fault. Later work opens the device again. @param {Gpu} gpu @param {string} fault */
  async giveUp(gpu, fault) {
    const { model } = this;
    if (fault !== REFUSED) await freeGpu(model, fault);
    if (gpu.lost) {
      model.state.enter('failed');
      const next = gpu.replaceable ? await acquireGpu(model.host.gpuTimeout) : null;
      if (next) model.host = { ...model.host, gpu: next };
    }
    return false;
  }
}

/** Why the model moves, in one line. @param {unknown} error @returns {string} */
function reasonOf(error) {
  const { node = '', detail } = /** @type {Partial<import('../common/errors.js').PyRuntimeError>} */ (error);
  return `${node && `${node}: `}${detail ?? /** @type {Error} */ (error).message}`.replace(/\s+/g, ' ').trim();
}

/** The fault behind an error, "" if it is none of the GPU, and the nodes at fault. @param {unknown} error @param {Gpu | null | undefined} gpu */
function faultOf(error, gpu) {
  const { isLate, atFault } = /** @type {{ isLate?: boolean, atFault?: Nodes }} */ (error);
  if (isLate) return { fault: LATE, nodes: {} };
  if (gpu?.lost || error instanceof DeviceLost) return { fault: gpu?.lost ? LOST : '', nodes: {} };
  if (isGpuFull(error)) return { fault: FULL, nodes: {} };
  return { fault: atFault ? REFUSED : '', nodes: atFault ?? {} };
}

/** The providers that a caller named, with those that "auto" chooses from. @param {readonly string[]} named */
export const expanded = (named) => named.flatMap((name) => (name === 'auto' ? ['webgpu', 'wasm'] : [name]));

/** Frees the GPU's memory; errors of invalid buffers that follow from the fault are dropped. @param {RecoverableModel} model @param {string} fault */
async function freeGpu(model, fault) {
  const { table, host: { gpu } } = model;
  if (fault !== LATE) await model.saveStates();
  table.releaseExecutors();
  gpu?.freePools();
  if (fault !== LATE) await gpu?.settle(); // which would not end
}

/** Whether the GPU's memory was full. @param {unknown} error */
export const isGpuFull = (error) => error instanceof OutOfMemory && 'gpu' in error;
