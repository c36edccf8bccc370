// Starts a large model while its files arrive: with the newest Programs that an earlier page compiled of a model from the same source.
// Whether they were compiled of this model is known when all bytes have arrived; if not, the start is dropped.

import { Model } from '../../session/model.js';
import { sizesOf } from '../files/read_ranges.js';
import { readerOf } from '../files/reader.js';
import { CachedCompiler } from '../programs/cached_compiler.js';
import { started } from './start_model.js';

/** @import { Compiler } from '../../session/compiler.js' */
/** @import { Files } from '../files/model_file.js' */
/** @import { Bundle } from '../programs/program_bundle.js' */
/** @import { OnProgress } from './model_files.js' */
/** @import { Source } from './types.js' */

/** A model of cached Programs. @param {Source} source @param {Bundle} bundle @param {() => Promise<Compiler>} open its model in Python */
export function cachedModel({ files, host, trainer, reads }, bundle, open) {
  bundle.reads.forEach((range) => reads.add(range));
  const read = readerOf(files);
  const model = new Model(new CachedCompiler(bundle, open), () => read, host);
  if (trainer) model.train(trainer);
  for (const [key, program] of bundle.programs) model.table.add(key, program);
  return model;
}

/**
 * starting: no model if the start failed, or if the files did not arrive.
 * @typedef {{ source: Source, bundle: Bundle, starting: Promise<Model | void> }} EarlyStart
 */

/**
 * Starts a model with the newest Programs, if they were compiled of files of the same sizes.
 * @param {Source} source whose files arrive @param {Promise<unknown>} whole resolves when they have arrived
 * @param {() => Promise<Compiler>} open its model in Python @returns {Promise<EarlyStart | null>}
 */
export async function startEarly(source, whole, open) {
  const bundle = await source.cache?.guess();
  const arrives = [...source.files.values()].some(({ arrival }) => arrival);
  if (!arrives || bundle?.sizes !== sizesOf(source.files)) return null;
  const model = cachedModel(source, bundle, () => whole.then(open));
  const starting = started(model, () => {}, { download: 0, compile: 0 }, source.stop);
  return { source, bundle, starting: starting.then(() => whole.then(() => model, () => model.release()), () => {}) };
}

/**
 * The started model, if its Programs are those of these files; otherwise releases it.
 * @param {EarlyStart | null} early @param {Files} files that have arrived @param {OnProgress} progress
 */
export async function finishEarly(early, files, progress) {
  if (!early) return null;
  const { source, bundle } = early;
  const arrived = performance.now();
  progress({ phase: 'init', loaded: 0, total: 1 });
  const isRight = [...files].every(([path, file]) => source.files.get(path) === file) && await source.cache?.find(files) === bundle;
  const model = await early.starting;
  if (!model || !isRight) return void model?.release();
  progress({ phase: 'init', loaded: 1, total: 1 });
  return { model, source, timings: { download: arrived - source.start, compile: 0, init: performance.now() - arrived } };
}
