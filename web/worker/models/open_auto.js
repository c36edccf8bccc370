// Opens a session whose provider is "auto": on the provider that was faster on an earlier visit, or on WebAssembly with a trial.

import { GpuTrial } from './gpu_trial.js';
import { cachedPrograms } from '../programs/program_cache.js';
import { readChoice, storeChoice } from './stored_choice.js';
import { openCached, openCompiled } from './open_compiled.js';

/** @import { SessionHost } from '../../session/compiler.js' */
/** @import { Model } from '../../session/model.js' */
/** @import { Trainer } from './trainer.js' */
/** @import { Source, Way } from './types.js' */

/** @type {Way} */
export async function openOnFasterProvider(source) {
  const { candidate, host, stop } = source;
  if (!candidate) return null;
  const { adapter } = candidate;
  const onGpu = async (/** @type {Partial<SessionHost>} */ more) => {
    const cache = await cachedPrograms(source.params, source.options, Promise.resolve(adapter), source.interpreter);
    return { ...source, gpu: adapter, cache, host: { ...host, gpu: candidate, ...more } };
  };
  const choice = await readChoice(source, adapter);
  const why = choice ? `${choice.why}, on an earlier visit` : '';
  if (choice?.onGpu) {
    try {
      return await open(await onGpu({ whyNotGpu: why }));
    } catch {
      stop?.check(); // the driver may have changed; WebAssembly raises the error again if it is another's
    }
  }
  const openOnGpu = async (/** @type {Model} */ running) => {
    const memoryLimit = host.memoryLimit && Math.max(1, host.memoryLimit - running.arenaBytes());
    const trainer = /** @type {Trainer | null} */ (source.trainer)?.another() ?? null; // measured runs change weights
    const opened = await open({ ...await onGpu({ trial, memoryLimit }), trainer, stop: null, start: performance.now() });
    return /** @type {Model} */ (opened.model);
  };
  const onWasm = choice && !choice.onGpu ? choice : null;
  const trial = new GpuTrial(onWasm?.best ?? 0, openOnGpu, (result) => storeChoice(source, adapter, result));
  if (onWasm) trial.trial.why = why;
  return { ...await open({ ...source, host: { ...host, trial } }), trial };
}

/** @param {Source} source */
const open = async (source) => await openCached(source) ?? openCompiled(source);
