// Sessions of one model share its weights in memory and its Programs.

import { Model } from '../../session/model.js';
import { sizesOf } from '../files/read_ranges.js';
import { addedNames } from '../providers/named.js';
import { closeAll } from './model_files.js';

/** @import { Files } from '../files/model_file.js' */
/** @import { Source, Way } from './types.js' */

const LEAST = 4 * 2 ** 20; // bytes of files: smaller models are not shared, so that each session has its own arena

/**
 * A text that equals that of another source if models differ at most by the content of their files.
 * @param {Source} source
 */
const settingsOf = ({ files, options, params: { limits }, host: { logOptions, named, whyNotGpu } }) => (
  JSON.stringify([sizesOf(files), options, limits, logOptions, named, whyNotGpu]));

/** Whether a session shares no models: the page's own Python code or providers, training, or a move to the GPU may make it differ. @param {Source} source */
export const isAlone = ({ interpreter, params, candidate }) => Boolean(interpreter.customised || params.options.training || candidate || addedNames(params.options).length);

/** Whether the files hold the same bytes. @param {Files} a @param {Files} b */
async function equal(a, b) {
  const hashes = (/** @type {Files} */ files) => Promise.all([...files].sort().map(async ([path, file]) => `${path} ${await file.hash()}`));
  const [one, other] = await Promise.all([hashes(a), hashes(b)]);
  return one.join() === other.join();
}

/**
 * Open models that differ from this one at most by the content of their files, and run on WebAssembly and stay there.
 * @param {Source} source
 */
export function alikeModels(source) {
  const bytes = [...source.files.values()].reduce((sum, { size }) => sum + size, 0);
  if (bytes < LEAST || source.gpu) return [];
  const settings = settingsOf(source);
  return source.others().filter(({ model, source: other, trial }) => (
    other && !other.gpu && !trial && model instanceof Model && settingsOf(other) === settings));
}

/** Takes an open model with the same files and settings, if it runs on WebAssembly and stays there. @type {Way} */
export async function openShared(source) {
  const { files, others, start } = source;
  for (const open of isAlone(source) ? [] : alikeModels(source)) {
    const same = open.source && await equal(open.source.files, files).catch(() => false); // it was released meanwhile
    if (!same || !others().includes(open)) continue;
    closeAll(files.values());
    return { ...open, timings: { download: performance.now() - start, compile: 0, init: 0 } };
  }
  return null;
}
