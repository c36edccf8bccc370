// Recovers from GPU faults: a model runs again on a new device or after freeing the GPU's memory, and at last on WebAssembly.

import { OutOfMemory } from '../common/errors.js';
import { warn } from '../common/log.js';
import { acquireGpu } from '../gpu/device.js';
import { freeIdle } from './idle_models.js';

/**
 * The part of a session's model that recovery uses.
 * @typedef {object} RecoverableModel
 * @property {import('./compiler.js').Compiler} compiler
 * @property {import('./compiler.js').SessionHost} host
 * @property {string} lostGpu why the GPU was lost, if the model fell back to WebAssembly
 * @property {import('./states.js').SessionState} state
 * @property {import('./program_table.js').ProgramTable} table
 * @property {(change: () => unknown) => Promise<void>} recompile compiles anew after a change that makes earlier Programs useless
 */

/**
 * The result of `work`, which is tried again after a fault of the GPU.
 * @template T @param {RecoverableModel} model @param {() => Promise<T>} work
 * @param {(lost: string) => void} checkRetry refuses work that needs the lost device; lost: why the device is lost, "" if it is not
 * @returns {Promise<T>}
 */
export async function runWithRecovery(model, work, checkRetry) {
  const { gpu } = model.host;
  if (!gpu) {
    checkRetry(model.lostGpu);
    return work();
  }
  try {
    gpu.throwIfLost();
    return await work();
  } catch (error) {
    if (!(await recover(model, error))) throw error;
  }
  checkRetry(gpu.lost);
  try {
    return await work();
  } catch (error) {
    if (isGpuFull(error)) await freeGpu(model);
    if (!model.host.gpu?.lost) throw error;
    await recovering(model, () => fallBackToWasm(model, /** @type {Error} */ (error).message));
    return work();
  }
}

/**
 * Prepares another try, if that can help: acquires a new device, or frees memory.
 * @param {RecoverableModel} model @param {unknown} error @returns {Promise<boolean>}
 */
async function recover(model, error) {
  const gpu = /** @type {import('../gpu/device.js').Gpu} */ (model.host.gpu);
  if (!gpu.lost && !isGpuFull(error)) return false;
  return recovering(model, async () => {
    if (gpu.lost && !gpu.replaceable) return model.state.enter('failed');
    await freeGpu(model);
    const next = gpu.lost ? await acquireGpu() : gpu;
    if (next) model.host = { ...model.host, gpu: next };
    else await fallBackToWasm(model, /** @type {Error} */ (error).message);
  });
}

/** @param {RecoverableModel} model @param {() => Promise<void>} work @returns {Promise<boolean>} whether the session goes on */
async function recovering(model, work) {
  model.state.enter('recovering');
  try {
    await work();
  } catch (error) {
    model.state.enter('failed');
    throw error;
  }
  if (model.state.current === 'failed') return false;
  model.state.enter('running');
  return true;
}

/** From now on the model runs without the GPU. @param {RecoverableModel} model @param {string} reason */
async function fallBackToWasm(model, reason) {
  warn(`${reason}; the session continues on WebAssembly`, model.host.logOptions);
  model.lostGpu = model.host.gpu?.lost ?? '';
  model.host = { ...model.host, gpu: null };
  await model.recompile(() => model.compiler.fallBackToWasm());
}

/** Frees the GPU's memory, that of idle models, too; errors of invalid buffers that follow from the fault are dropped. @param {RecoverableModel} model */
async function freeGpu({ table, host: { gpu } }) {
  table.releaseExecutors();
  while (freeIdle());
  gpu?.freePools();
  await gpu?.settle();
}

/** Whether the GPU's memory was full. @param {unknown} error */
export const isGpuFull = (error) => error instanceof OutOfMemory && 'gpu' in error;
