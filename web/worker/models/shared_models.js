// Sessions of one model share its weights in memory and its Programs.

import { Model } from '../../session/model.js';
import { sizesOf } from '../files/read_ranges.js';

/** @import { Files } from '../files/model_file.js' */
/** @import { Opened, Source } from './types.js' */

const LEAST = 4 * 2 ** 20; // bytes of files: smaller models are not shared, so that each session has its own arena

/**
 * A text that equals that of another source if models differ at most by the content of their files.
 * @param {Source} source
 */
const settingsOf = ({ files, options, host: { threads, shared, memoryLimit, logOptions, named, whyNotGpu } }) => (
  JSON.stringify([sizesOf(files), options, threads, shared, memoryLimit, logOptions, named, whyNotGpu]));

/** Whether the files hold the same bytes. @param {Files} a @param {Files} b */
async function equal(a, b) {
  const hashes = (/** @type {Files} */ files) => Promise.all([...files].sort().map(async ([path, file]) => `${path} ${await file.hash()}`));
  const [one, other] = await Promise.all([hashes(a), hashes(b)]);
  return one.join() === other.join();
}

/**
 * Open models that differ from this one at most by the content of their files, and run on WebAssembly and stay there.
 * @param {Source} source @param {() => Opened[]} others open models
 */
export function alikeModels(source, others) {
  const bytes = [...source.files.values()].reduce((sum, { size }) => sum + size, 0);
  if (bytes < LEAST || source.gpu) return [];
  const settings = settingsOf(source);
  return others().filter(({ model, source: other, trial }) => (
    other && !other.gpu && !trial && model instanceof Model && settingsOf(other) === settings));
}

/**
 * An open model with the same files and settings, if it runs on WebAssembly and stays there.
 * @param {Source} source @param {() => Opened[]} others open models
 */
export async function sharedModel(source, others) {
  for (const open of alikeModels(source, others)) {
    const same = await equal(/** @type {Source} */ (open.source).files, source.files).catch(() => false); // it was released meanwhile
    if (same && others().includes(open)) return open;
  }
  return undefined;
}
