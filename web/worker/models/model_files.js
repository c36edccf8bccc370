// The files of a model: its own, its external data, and those that the weights of an exported program are in.

import { InvalidModel } from '../../common/errors.js';
import { fetchFile } from './download.js';

/** @typedef {import('../../common/protocol.js').CreateParams} CreateParams */
/** @typedef {(p: import('../../common/protocol.js').Progress) => void} OnProgress */
/** @typedef {import('../../common/stop.js').Stop} Stop */
/** @typedef {import('./model_file.js').Files} Files */
/** @typedef {import('./model_file.js').ModelFile} ModelFile */

/**
 * Files side by side; when one fails, or the call is stopped, the others are left.
 * @param {CreateParams['external']} given
 * @param {OnProgress} progress
 * @param {Stop | null} [stop]
 * @returns {Promise<Map<string, ModelFile>>} by path
 */
export async function downloads(given, progress, stop) {
  const files = [...new Map(given.map(({ path, origin }) => [plain(path), origin]))].map(([path, origin]) => ({ path, origin })); // the last one of a path
  const counts = files.map(() => ({ loaded: 0, total: 0 }));
  const leave = new AbortController();
  stop?.controller.signal.addEventListener('abort', () => leave.abort());
  const coming = files.map(({ origin }, i) => fetchFile(origin, (loaded, total) => {
    counts[i] = { loaded, total };
    const sum = (/** @type {'loaded'|'total'} */ key) => counts.reduce((all, count) => all + count[key], 0);
    progress({ phase: 'download', loaded: sum('loaded'), total: counts.every((count) => count.total) ? sum('total') : 0 });
  }, leave.signal));
  try {
    const done = await Promise.all(coming);
    return new Map(files.map(({ path }, i) => [path, done[i]]));
  } catch (error) {
    leave.abort();
    for (const file of coming) file.then((came) => closeAll([came]), () => {}); // for nothing
    stop?.check();
    throw error;
  }
}

/** Files that nobody reads any more. @param {Iterable<ModelFile>} files */
export function closeAll(files) {
  for (const file of files) file.close().catch(() => {}); // swept later
}

/** As models name files. @param {string} path */
export const plain = (path) => path.replaceAll('\\', '/').replace(/^(\.\/)+/, '');

/** A file by its path in the model or by that path's last part. @param {Files} files @param {string} name */
const lookUp = (files, name) => files.get(name) ?? files.get(name.slice(name.lastIndexOf('/') + 1));

/** Reads parts of the model and of its files. @param {Files} files @returns {import('../../run/environment.js').ReadFile} */
export function readerOf(files) {
  const fileWith = (/** @type {number} */ end, /** @type {string} */ name) => {
    const file = lookUp(files, name);
    if (!file) throw new InvalidModel(`external data "${name}" was not given`, { hint: 'list it in the externalData option' });
    if (end > file.size) throw new InvalidModel(`${name ? `external data "${name}"` : 'the model'} is cut off`);
    return file;
  };
  /** @type {import('../../run/environment.js').ReadFile} */
  const read = (offset, size, name = '') => fileWith(offset + size, name).read(offset, size);
  read.into = (target, offset, name = '') => fileWith(offset + target.length, name).fill(target, offset);
  return read;
}

/**
 * The files that a program's weights are in, checked: given, or beside it.
 * @param {import('../programs/program_file.js').ExportedProgram} program @param {CreateParams} params @param {Files} files @param {OnProgress} progress
 * @param {Stop | null} [stop]
 * @returns {Promise<Map<string, ModelFile>>} by their names in the Program
 */
export async function weightsOf(program, { model }, files, progress, stop) {
  const all = new Map();
  const missing = [];
  for (const [name, file] of program.files) {
    const given = lookUp(files, file);
    if (given) all.set(name, given);
    else missing.push({ path: name, origin: beside(model, file) });
  }
  for (const [name, file] of await downloads(missing, progress, stop)) all.set(name, file);
  try {
    for (const [name, file] of all) program.check(name, file);
  } catch (error) {
    closeAll(all.values());
    throw error;
  }
  return all;
}

/**
 * A file beside the model, by the address that was asked for: where that leads to may be a store that has no folders.
 * @param {import('../../common/protocol.js').Origin} model @param {string} file
 */
export function beside(model, file) {
  if (!('url' in model)) throw new InvalidModel(`the weights of this program are in "${file}"`, { hint: 'list it in the externalData option, or export with weights' });
  const path = plain(file).split('/').map(encodeURIComponent).join('/');
  return { url: new URL(`./${path}`, model.url).href, keep: model.keep };
}
