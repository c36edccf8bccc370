// Sessions of one model share it: its weights are in memory once, and it is compiled once.

import { Model } from '../../session/model.js';

/** @typedef {import('./open_model.js').Opened} Opened */
/** @typedef {import('./open_model.js').Source} Source */
/** @typedef {import('./model_file.js').Files} Files */

const LEAST = 4 * 2 ** 20; // bytes of files: what is smaller is not worth sharing the memory that runs need

/** @param {Files} files */
const sizes = (files) => [...files].map(([path, { size }]) => [path, size]).sort();

/** All that a model depends on but the content of its files. @param {Source} source */
const named = ({ files, options, host: { threads, shared, memoryLimit, logOptions } }) => JSON.stringify([sizes(files), options, threads, shared, memoryLimit, logOptions]);

/** Whether the files hold the same bytes. @param {Files} a @param {Files} b */
async function equal(a, b) {
  const hashes = (/** @type {Files} */ files) => Promise.all([...files].sort().map(async ([path, file]) => `${path} ${await file.hash()}`));
  const [one, other] = await Promise.all([hashes(a), hashes(b)]);
  return one.join() === other.join();
}

/** One of those that are open that runs the same in linear memory, if there is one. @param {Source} source @param {() => Opened[]} others */
export async function sharedModel(source, others) {
  const bytes = [...source.files.values()].reduce((sum, { size }) => sum + size, 0);
  if (bytes < LEAST || source.gpu) return undefined;
  const alike = others().filter((open) => open.source && !open.source.gpu && open.model instanceof Model && named(open.source) === named(source));
  for (const open of alike) {
    const same = await equal(/** @type {Source} */ (open.source).files, source.files).catch(() => false); // released meanwhile
    if (same && others().includes(open)) return open;
  }
  return undefined;
}
