// Opens a session whose provider is "auto": on the provider that was faster on an earlier visit, or on WebAssembly with a trial.

import { GpuTrial } from './gpu_trial.js';
import { keepChoice, keptChoice } from './kept_choice.js';

/** @import { Gpu } from '../../gpu/device.js' */
/** @import { Model } from '../../session/model.js' */
/** @import { Trainer } from './trainer.js' */
/** @import { Opened, Source } from './types.js' */

/**
 * @param {Source} source for WebAssembly @param {Gpu} gpu
 * @param {(source: Source) => Promise<Opened>} open @param {(adapter: Gpu['adapter']) => Promise<Source['cache']>} cacheFor Programs for this GPU
 * @returns {Promise<Opened>}
 */
export async function openAuto(source, gpu, open, cacheFor) {
  const { host, stop } = source;
  /** @param {Partial<import('../../session/compiler.js').SessionHost>} more @returns {Promise<Source>} */
  const onGpu = async (more) => (
    { ...source, gpu: gpu.adapter, cache: await cacheFor(gpu.adapter), host: { ...host, gpu, ...more } });
  const kept = await keptChoice(source, gpu.adapter);
  if (kept?.onGpu) {
    try {
      return await open(await onGpu({ whyNotGpu: `${kept.why}, on an earlier visit` }));
    } catch {
      stop?.check(); // the driver may have changed; WebAssembly raises the error again if it is another's
    }
  }
  const openOnGpu = async (/** @type {Model} */ running) => {
    const memoryLimit = host.memoryLimit && Math.max(1, host.memoryLimit - running.arenaBytes());
    const other = await onGpu({ trial, memoryLimit });
    const trainer = /** @type {Trainer | null} */ (source.trainer)?.another() ?? null; // measured runs change weights
    return /** @type {Model} */ ((await open({ ...other, trainer, stop: null, start: performance.now() })).model);
  };
  const keep = (/** @type {GpuTrial['trial']} */ choice) => keepChoice(source, gpu.adapter, choice);
  const trial = new GpuTrial(kept && !kept.onGpu ? kept.best : 0, openOnGpu, keep);
  if (kept && !kept.onGpu) trial.trial.why = `${kept.why}, on an earlier visit`;
  const opened = await open({ ...source, host: { ...host, trial } });
  return { ...opened, trial };
}
