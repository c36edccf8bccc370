// Opens a model with Programs that Python compiles, or compiled for an earlier page.

import { InvalidModel } from '../../common/errors.js';
import { during } from '../../common/log.js';
import { mark } from '../../common/marks.js';
import { Model } from '../../session/model.js';
import { readerOf } from '../files/reader.js';
import { CachedCompiler } from '../programs/cached_compiler.js';
import { beside, openFiles, ownFile } from './model_files.js';

/** @import { ProgramData } from '../../common/program.js' */
/** @import { Timings } from '../../common/protocol.js' */
/** @import { Compiler } from '../../session/compiler.js' */
/** @import { Files } from '../files/model_file.js' */
/** @import { Bundle } from '../programs/program_bundle.js' */
/** @import { Opened, Source } from './types.js' */

/** Opens the Programs that an earlier page compiled, if the cache has any and this browser can run them. @type {import('./types.js').Way} */
export async function openCached(source) {
  const { start, files, cache, stop, interpreter } = source;
  const bundle = interpreter.customised ? null : await cache?.find(files);
  if (!cache || !bundle) return null;
  const download = performance.now() - start;
  try {
    const opened = await started(cachedModel(source, bundle), source, { download, compile: 0 });
    storeNewPrograms(opened.model, source);
    return opened;
  } catch {
    stop?.check();
    await cache.remove(); // the entry may be the cause; if not, compiling raises the error again
    return null;
  }
}

/** Compiles a model in Python. @param {Source} source */
export async function openCompiled(source) {
  const { start, interpreter, progress, stop } = source;
  const download = performance.now() - start;
  await interpreter.start(progress);
  await stop?.yieldToEventLoop();
  const booted = performance.now();
  progress({ phase: 'compile', loaded: 0, total: 1 });
  const model = modelOf(source, await readInPython(source));
  mark('model compiled');
  progress({ phase: 'compile', loaded: 1, total: 1 });
  const opened = await started(model, source, { download, compile: performance.now() - booted });
  storeNewPrograms(model, source);
  model.onNewProgram();
  return opened;
}

/**
 * A model of cached Programs, which Python reads if it needs others.
 * @param {Source} source @param {Bundle} bundle @param {Promise<unknown>} [whole] resolves when the files have arrived
 */
export function cachedModel(source, bundle, whole = Promise.resolve()) {
  bundle.reads.forEach((range) => source.reads.add(range));
  const model = modelOf(source, new CachedCompiler(bundle, () => whole.then(() => readInPython(source))));
  for (const [key, program] of bundle.programs) model.table.add(key, program);
  return model;
}

/** @param {Source} source @param {Compiler} compiler @param {Files} [files] with the weights */
export function modelOf({ files: own, host, trainer }, compiler, files = own) {
  const read = readerOf(files);
  const model = new Model(compiler, () => read, host);
  if (trainer) model.train(trainer);
  return model;
}

/**
 * Starts a model: afterwards it accepts runs. After an error it is released.
 * @param {Model} model @param {Source} source @param {Omit<Timings, 'init'>} times
 * @returns {Promise<Opened & { model: Model }>}
 */
export async function started(model, source, times) {
  const { progress, stop, files } = source;
  const start = performance.now();
  progress({ phase: 'init', loaded: 0, total: 1 });
  try {
    await stop?.yieldToEventLoop();
    await model.start(stop);
    await stop?.yieldToEventLoop();
  } catch (error) {
    model.release();
    throw error;
  }
  progress({ phase: 'init', loaded: 1, total: 1 });
  return { model, source, timings: { ...times, init: performance.now() - start }, files: [...files.values()] };
}

/** From now on the Programs of a model are stored for later pages when it gets a new one. @param {Model} model @param {Source} source */
export function storeNewPrograms(model, source) {
  model.onNewProgram = () => storePrograms(source, model.compiler, model.table.programs);
}

/** @param {Source} source @param {Compiler} compiler @param {Map<string, ProgramData>} programs */
export function storePrograms({ cache, files, reads, interpreter }, { info, needs }, programs) {
  if (!interpreter.customised) cache?.save(files, { info, needs, reads: reads.all(), programs });
}

/** Reads a model in Python. Downloads external data that the caller did not list from addresses beside the model. @param {Source} source */
export async function readInPython(source) {
  const { params: { model, limits }, files, host, gpu, options, stop, reads, interpreter, progress } = source;
  const python = await interpreter.start();
  const read = reads.recorded(readerOf(files));
  const { size } = ownFile(files);
  for (let before = 0;; before = files.size) {
    const external = Object.fromEntries([...files].filter(([path]) => path).map(([path, file]) => [path, file.size]));
    try {
      const { fallback } = host;
      const open = () => during(host.logOptions, () => python.open(read, size, { ...options, ...limits, gpu, external, fallback }, stop));
      return await (interpreter.added?.open(source, python, open) ?? open());
    } catch (error) {
      const canDownload = error instanceof InvalidModel && 'url' in model && files.size > before;
      const missing = canDownload ? python.missing(read, size, external) : [];
      if (!missing.length) throw error;
      source.cache = null; // its keys cover only the listed files
      const more = await openFiles(missing.map((path) => ({ path, origin: beside(model, path) })), progress, stop);
      for (const [path, file] of more) files.set(path, file);
    }
  }
}
