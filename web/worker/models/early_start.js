// Starts a large model while its files arrive: with the newest Programs that an earlier page compiled of a model from the same source.
// Whether they were compiled of this model is known when all bytes have arrived; if not, the start is dropped.

import { ReadRanges, sizesOf } from '../files/read_ranges.js';
import { cachedModel, started, storeNewPrograms } from './open_compiled.js';
import { alikeModels, isAlone } from './shared_models.js';

/** @import { EarlyStart, Source, Way } from './types.js' */

/**
 * Starts a model with the newest Programs, if they were compiled of files of the same sizes.
 * @param {Promise<Source>} preparing without files @param {Source['files']} files that arrive
 * @param {Promise<unknown>} whole resolves when they have arrived
 * @returns {Promise<EarlyStart | null>}
 */
export async function startEarly(preparing, files, whole) {
  const source = { ...await preparing, files, reads: new ReadRanges() };
  if (source.params.gpu || isAlone(source) || alikeModels(source).length) return null;
  const bundle = await source.cache?.guess();
  const arrives = [...files.values()].some(({ arrival }) => arrival);
  if (!arrives || bundle?.sizes !== sizesOf(files)) return null;
  const model = cachedModel(source, bundle, whole);
  const starting = started(model, { ...source, progress() {} }, { download: 0, compile: 0 });
  return { source, bundle, starting: starting.then(() => whole.then(() => model, () => model.release()), () => {}) };
}

/** Opens the model that started early, if its Programs are those of the files that have arrived; otherwise releases it. @type {Way} */
export async function openEarly(whole) {
  const { early, files, progress } = whole;
  if (!early) return null;
  whole.early = null; // frees its files and Programs if it is dropped
  const { source, bundle } = early;
  const arrived = performance.now();
  progress({ phase: 'init', loaded: 0, total: 1 });
  const isRight = [...files].every(([path, file]) => source.files.get(path) === file) && await source.cache?.find(files) === bundle;
  const model = await early.starting;
  if (!model || !isRight) {
    model?.release();
    return null;
  }
  progress({ phase: 'init', loaded: 1, total: 1 });
  storeNewPrograms(model, source);
  const timings = { download: arrived - source.start, compile: 0, init: performance.now() - arrived };
  return { model, source, timings, files: [...files.values()] };
}
