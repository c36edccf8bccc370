// Opens a model: its Program is in a file, or in the cache of an earlier page, or Python compiles it.

import { InvalidModel } from '../../common/errors.js';
import { during } from '../../common/log.js';
import { mark } from '../../common/marks.js';
import { isProgram, looksLikeProgram } from '../../common/program_mark.js';
import { compileCode } from '../../run/load_program.js';
import { Model } from '../../session/model.js';
import { trainingCode } from './trainer_code.js';
import { ReadRanges } from '../files/read_ranges.js';
import { readerOf } from '../files/reader.js';
import { beside, closeAll, openFiles } from './model_files.js';
import { CachedCompiler } from '../programs/cached_compiler.js';
import { cachedModel, finishEarly, startEarly } from './early_start.js';
import { alikeModels, sharedModel } from './shared_models.js';
import { cachedPrograms } from '../programs/program_cache.js';
import { PageCompiler } from './page_compiler.js';
import { gpuFor } from './choose_gpu.js';
import { openAuto } from './open_auto.js';
import { openProgram, programForPage } from './open_program.js';
import { started } from './start_model.js';
import { codeFeatures } from '../wasm_features.js';

/** @import { CreateParams } from '../../common/protocol.js' */
/** @import { Stop } from '../../common/stop.js' */
/** @import { ThreadPool } from '../../threads/pool.js' */
/** @import { Files, ModelFile } from '../files/model_file.js' */
/** @import { Interpreter } from '../interpreter/interpreter.js' */
/** @import { OnProgress } from './model_files.js' */
/** @import { Opened, Source } from './types.js' */

/**
 * @param {CreateParams} params @param {OnProgress} progress
 * @param {Interpreter} interpreter @param {ThreadPool | null} pool threads of the worker @param {Stop | null} stop
 * @param {() => Opened[]} others open models
 * @returns {Promise<Opened>} perhaps one of `others`, with the times of this call
 */
export async function openModel(params, progress, interpreter, pool, stop, others) {
  const start = performance.now();
  const shared = pool !== null && params.shared;
  const threads = shared ? params.threads : 1;
  const options = { ...params.options, threads, shared, ...codeFeatures(params.options.fixedSimd) };
  const device = gpuFor(params);
  const preparing = Promise.all([device, prepare(params, options, device, interpreter, progress)]);
  const { limits, fallback, logOptions, named } = params;
  const common = { start, trainer: null, origin: params.model, options: { ...options, ...limits }, stop };
  const sourceOf = async (/** @type {Source['files']} */ files) => {
    const [{ gpu, whyNot }, cache] = await preparing;
    const host = { shared, threads, pool, gpu, named, whyNotGpu: whyNot, fallback, ...limits, logOptions };
    return { ...common, files, cache, reads: new ReadRanges(), gpu: params.gpu ?? gpu?.adapter ?? null, host };
  };
  const isAlone = async () => interpreter.customised || params.options.training || (await device).candidate;
  const begin = async (/** @type {Source['files']} */ arriving) => {
    const source = await sourceOf(arriving);
    const mayFit = !params.gpu && !await isAlone() && !alikeModels(source, others).length;
    return mayFit ? startEarly(source, opening, () => openInPython(source, interpreter)) : null;
  };
  /** @type {ReturnType<typeof startEarly>} */
  let starting = Promise.resolve(null);
  const opening = openFiles([{ path: '', origin: params.model }, ...params.external], progress, stop, (arriving) => { starting = begin(arriving).catch(() => null); });
  const [files, [{ candidate }]] = await Promise.all([opening, preparing]).catch((error) => {
    opening.then((opened) => closeAll(opened.values()), () => {});
    throw error;
  });
  mark('model fetched');
  try {
    const early = await finishEarly(await starting, files, progress);
    if (early) return kept(early, interpreter);
    return await openSource(params, await sourceOf(files), progress, interpreter, await isAlone() ? () => [] : others, candidate);
  } catch (error) {
    closeAll(files.values());
    throw error;
  }
}

/**
 * @param {CreateParams} params @param {Source} source @param {OnProgress} progress @param {Interpreter} interpreter
 * @param {() => Opened[]} others open models that it may share @param {import('../../gpu/device.js').Gpu} [candidate] a GPU to measure
 * @returns {Promise<Opened>}
 */
async function openSource(params, source, progress, interpreter, others, candidate) {
  if (params.options.training) source.trainer = new (await trainingCode(/** @type {import('../../common/protocol.js').Assets} */ (interpreter.assets).training)).Trainer();
  const shared = await sharedModel(source, others);
  if (shared) {
    closeAll(source.files.values());
    return { ...shared, timings: { download: performance.now() - source.start, compile: 0, init: 0 } };
  }
  const own = ownOf(source.files);
  if (isProgram(own.read(0, Math.min(4, own.size)))) return openProgram(params, source, progress, candidate);
  if (params.gpu) return openForPage(source, interpreter, progress);
  const open = async (/** @type {Source} */ from) => (
    (interpreter.customised ? null : await openCached(from, progress, interpreter)) ?? compile(from, interpreter, progress));
  if (!candidate) return open(source);
  return openAuto(source, candidate, open, (adapter) => programsOf(params, source.options, Promise.resolve(adapter), interpreter));
}

/**
 * Opens a compiler in the worker for a session that runs in the page.
 * @param {Source} source @param {Interpreter} interpreter @param {OnProgress} [progress] @returns {Promise<Opened>}
 */
export async function openForPage(source, interpreter, progress = () => {}) {
  const { cache, files, host, start, program } = source;
  if (program) return programForPage(source, program);
  const known = interpreter.customised ? null : await cache?.find(files);
  known?.reads.forEach((range) => source.reads.add(range));
  const download = performance.now() - start;
  if (!known) await interpreter.start(progress);
  const booted = performance.now();
  progress({ phase: 'compile', loaded: 0, total: 1 });
  const open = () => openInPython(source, interpreter);
  const compiler = known ? new CachedCompiler(known, open) : await open();
  const model = new PageCompiler(compiler, readerOf(files), host.logOptions);
  if (!known) model.onMainProgram = (program) => keep(source, compiler, new Map([['', program]]), interpreter);
  progress({ phase: 'compile', loaded: 1, total: 1 });
  return { model, source, files: [...files.values()], timings: { download, compile: performance.now() - booted, init: 0 } };
}

/**
 * Opens the cache of Programs. If it has none for the model, Python starts during the download.
 * @param {CreateParams} params @param {Record<string, unknown>} options for Python @param {ReturnType<typeof gpuFor>} device
 * @param {Interpreter} interpreter @param {OnProgress} progress
 */
async function prepare(params, options, device, interpreter, progress) {
  const { model, gpu: pages } = params;
  const adapter = device.then(({ gpu }) => pages ?? gpu?.adapter ?? null, () => null); // its error is handled where it is awaited
  const cache = await programsOf(params, options, adapter, interpreter);
  if (!cache?.hasEntries && !looksLikeProgram(model)) interpreter.start(progress).catch(() => {}); // as above
  device.then(async ({ gpu }) => {
    for (const program of (await cache?.guess())?.programs.values() ?? []) {
      gpu?.warm(program);
      compileCode(program).catch(() => {}); // as above
    }
  }).catch(() => {}); // as above
  return cache;
}

/**
 * The cached Programs of a model for a GPU, or for WebAssembly alone.
 * @param {CreateParams} params @param {Record<string, unknown>} options for Python
 * @param {Promise<Record<string, unknown> | null>} adapter @param {Interpreter} interpreter
 */
async function programsOf({ model, external }, options, adapter, { assets, customised }) {
  const origins = [model, ...external.map(({ origin }) => origin)];
  return assets && !customised ? cachedPrograms(assets.engine, origins, options, adapter) : null;
}

/**
 * Opens the Programs that an earlier page compiled, if the cache has any and this browser can run them.
 * @param {Source} source @param {OnProgress} progress @param {Interpreter} interpreter @returns {Promise<Opened | null>}
 */
async function openCached(source, progress, interpreter) {
  const { start, files, cache, stop } = source;
  const known = await cache?.find(files);
  if (!cache || !known) return null;
  const download = performance.now() - start;
  try {
    const model = cachedModel(source, known, () => openInPython(source, interpreter));
    return kept({ ...await started(model, progress, { download, compile: 0 }, stop), source }, interpreter);
  } catch {
    stop?.check();
    await cache.remove(); // the entry may be the cause; if not, compiling raises the error again
    return null;
  }
}

/**
 * A session of cached Programs that stores those that it compiles, too.
 * @param {{ model: Model, source: Source, timings: Opened['timings'] }} opened @param {Interpreter} interpreter @returns {Opened}
 */
function kept({ model, source, timings }, interpreter) {
  model.onNewProgram = () => keep(source, model.compiler, model.table.programs, interpreter);
  return { model, source, timings, files: [...source.files.values()] };
}

/**
 * Reads a model in Python; downloads external data that the caller did not list from addresses beside the model.
 * @param {Source} source @param {Interpreter} interpreter @param {OnProgress} [progress]
 */
async function openInPython(source, interpreter, progress = () => {}) {
  const { files, host, gpu, options, stop, origin, reads } = source;
  const python = await interpreter.start();
  const read = reads.recorded(readerOf(files));
  for (let before = 0;; before = files.size) {
    const external = Object.fromEntries([...files].filter(([path]) => path).map(([path, file]) => [path, file.size]));
    try {
      return during(host.logOptions, () => python.open(read, ownOf(files).size, { ...options, gpu, external }, stop));
    } catch (error) {
      const canDownload = error instanceof InvalidModel && 'url' in origin && files.size > before;
      const missing = canDownload ? python.missing(read, ownOf(files).size, external) : [];
      if (!missing.length) throw error;
      source.cache = null; // its keys cover only the listed files
      const more = await openFiles(missing.map((path) => ({ path, origin: beside(origin, path) })), progress, stop);
      for (const [path, file] of more) files.set(path, file);
    }
  }
}

/** @param {Source} source @param {Interpreter} interpreter @param {OnProgress} progress @returns {Promise<Opened>} */
async function compile(source, interpreter, progress) {
  const { start, files, host, stop } = source;
  const download = performance.now() - start;
  await interpreter.start(progress);
  await stop?.yieldToEventLoop();
  const booted = performance.now();
  progress({ phase: 'compile', loaded: 0, total: 1 });
  const compiler = await openInPython(source, interpreter, progress);
  mark('model compiled');
  const model = new Model(compiler, weightsIn(files), host);
  if (source.trainer) model.train(source.trainer);
  progress({ phase: 'compile', loaded: 1, total: 1 });
  const ready = await started(model, progress, { download, compile: performance.now() - booted }, stop);
  model.onNewProgram = () => keep(source, compiler, model.table.programs, interpreter);
  model.onNewProgram();
  return { ...ready, source, files: [...files.values()] };
}

/**
 * Stores what a session compiled for later pages.
 * @param {Source} source @param {import('../../session/compiler.js').Compiler} compiler
 * @param {Map<string, import('../../common/program.js').ProgramData>} programs @param {Interpreter} interpreter
 */
function keep({ cache, files, reads }, { info, needs }, programs, interpreter) {
  if (!interpreter.customised) cache?.save(files, { info, needs, reads: reads.all(), programs });
}

/** The model's own file. @param {Files} files */
const ownOf = (files) => /** @type {ModelFile} */ (files.get(''));

/** @param {Files} files @returns {import('../../session/compiler.js').WeightsOf} */
function weightsIn(files) {
  const read = readerOf(files);
  return () => read;
}
