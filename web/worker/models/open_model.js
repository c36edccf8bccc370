// Opens a model. `WAYS` lists the ways to open one.

import { mark } from '../../common/marks.js';
import { looksLikeProgram } from '../../common/program_mark.js';
import { compileCode } from '../../run/load_program.js';
import { ReadRanges } from '../files/read_ranges.js';
import { cachedPrograms } from '../programs/program_cache.js';
import { codeFeatures } from '../wasm_features.js';
import { gpuFor } from './choose_gpu.js';
import { openEarly, startEarly } from './early_start.js';
import { closeAll, openFiles } from './model_files.js';
import { openOnFasterProvider } from './open_auto.js';
import { openCached, openCompiled } from './open_compiled.js';
import { openProgram } from './open_program.js';
import { openForPage } from './open_for_page.js';
import { openShared } from './shared_models.js';
import { trainingCode } from './trainer_code.js';

/** @import { CreateParams } from '../../common/protocol.js' */
/** @import { Stop } from '../../common/stop.js' */
/** @import { ThreadPool } from '../../threads/pool.js' */
/** @import { Interpreter } from '../interpreter/interpreter.js' */
/** @import { Choice } from './choose_gpu.js' */
/** @import { OnProgress } from './model_files.js' */
/** @import { EarlyStart, Opened, Source, Way } from './types.js' */
/**
 * What a worker opens models with. pool: its threads; others: the models that it has open.
 * @typedef {{ interpreter: Interpreter, pool: ThreadPool | null, others: () => Opened[] }} Opener
 */

/** The ways to open a model without compiling it: the first that is of use opens it. @type {Way[]} */
const WAYS = [openEarly, openShared, openProgram, openForPage, openOnFasterProvider, openCached];

/**
 * Opens a model while its files arrive. After an error the files are closed.
 * @param {CreateParams} params @param {OnProgress} progress @param {Stop | null} stop @param {Opener} opener
 * @returns {Promise<Opened>} perhaps a model that is open already, with the times of this call
 */
export async function openModel(params, progress, stop, opener) {
  const preparing = prepare(params, progress, stop, opener);
  /** @type {Promise<EarlyStart | null>} */
  let starting = Promise.resolve(null);
  const listed = [{ path: '', origin: params.model }, ...params.external];
  const opening = openFiles(listed, progress, stop, (arriving) => {
    starting = startEarly(preparing, arriving, opening).catch(() => null);
  });
  try {
    const [files, source] = await Promise.all([opening, preparing]);
    mark('model fetched');
    Object.assign(source, { files, early: await starting });
    for (const way of WAYS) {
      const opened = await way(source);
      if (opened) return opened;
    }
    return await openCompiled(source);
  } catch (error) {
    opening.then((files) => closeAll(files.values()), () => {});
    throw error;
  }
}

/**
 * All of a source but its files. Chooses the GPU and opens the cache of Programs, both during the download.
 * @param {CreateParams} params @param {OnProgress} progress @param {Stop | null} stop @param {Opener} opener
 * @returns {Promise<Source>}
 */
async function prepare(params, progress, stop, { interpreter, pool, others }) {
  const start = performance.now();
  const shared = pool !== null && params.shared;
  const threads = shared ? params.threads : 1;
  const options = { ...params.options, threads, shared, ...codeFeatures(params.options.fixedSimd) };
  const { limits, fallback, logOptions, named } = params;
  const device = gpuFor(params);
  const [{ gpu, whyNot, candidate }, cache] = await Promise.all([device, prepareCache(params, options, device, interpreter, progress)]);
  const host = { shared, threads, pool, gpu, named, whyNotGpu: whyNot, fallback, ...limits, logOptions };
  const trainer = params.options.training ? new (await trainingCode(interpreter)).Trainer() : null;
  return {
    params, progress, interpreter, others, start, stop, options, host, candidate, cache, trainer,
    files: new Map(), reads: new ReadRanges(), gpu: params.gpu ?? gpu?.adapter ?? null,
  };
}

/**
 * Opens the cache of Programs. If it has none for the model, Python starts; otherwise the newest are compiled by the browser.
 * @param {CreateParams} params @param {Source['options']} options @param {Promise<Choice>} device
 * @param {Interpreter} interpreter @param {OnProgress} progress
 */
async function prepareCache(params, options, device, interpreter, progress) {
  const adapter = device.then(({ gpu }) => params.gpu ?? gpu?.adapter ?? null, () => null); // `prepare` handles its error
  const cache = await cachedPrograms(params, options, adapter, interpreter);
  if (!cache?.hasEntries && !looksLikeProgram(params.model)) interpreter.start(progress).catch(() => {}); // a later start raises its error
  device.then(async ({ gpu }) => {
    for (const program of (await cache?.guess())?.programs.values() ?? []) {
      gpu?.warm(program);
      compileCode(program).catch(() => {}); // the start of the model raises its error
    }
  }).catch(() => {}); // `prepare` handles the error of `device`
  return cache;
}
