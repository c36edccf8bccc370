// The files of a model: its own, its external data, and the files with the weights of an exported Program.

import { InvalidModel } from '../../common/errors.js';
import { fetchFile } from '../files/download.js';
import { lookUp } from '../files/reader.js';

/** @import { CreateParams } from '../../common/protocol.js' */
/** @import { Stop } from '../../common/stop.js' */
/** @import { Files, ModelFile } from '../files/model_file.js' */
/** @typedef {(p: import('../../common/protocol.js').Progress) => void} OnProgress */

/**
 * Opens files in parallel. When one fails, or the call is stopped, the other downloads end.
 * @param {CreateParams['external']} given
 * @param {OnProgress} progress
 * @param {Stop | null} [stop]
 * @param {(files: Map<string, ModelFile>) => void} [begin] called when each file is there or begins to arrive
 * @returns {Promise<Map<string, ModelFile>>} by path
 */
export async function openFiles(given, progress, stop, begin = () => {}) {
  const byPath = new Map(given.map(({ path, origin }) => [plain(path), origin])); // the last of each path
  const files = [...byPath].map(([path, origin]) => ({ path, origin }));
  const counts = files.map(() => ({ loaded: 0, total: 0 }));
  const abort = new AbortController();
  stop?.controller.signal.addEventListener('abort', () => abort.abort());
  const count = (/** @type {number} */ i) => (/** @type {number} */ loaded, /** @type {number} */ total) => {
    counts[i] = { loaded, total };
    const sum = (/** @type {'loaded'|'total'} */ key) => counts.reduce((all, one) => all + one[key], 0);
    progress({ phase: 'download', loaded: sum('loaded'), total: counts.every((one) => one.total) ? sum('total') : 0 });
  };
  /** @type {Promise<ModelFile>[]} */
  const opening = [];
  const begun = files.map(({ origin }, i) => /** @type {Promise<ModelFile>} */ (new Promise((done, failed) => {
    opening[i] = fetchFile(origin, count(i), abort.signal, done);
    opening[i].then(done, failed);
  })));
  const named = (/** @type {ModelFile[]} */ some) => new Map(files.map(({ path }, i) => [path, some[i]]));
  const whole = Promise.all(opening);
  try {
    begin(named(await Promise.race([Promise.all(begun), whole])));
    return named(await whole);
  } catch (error) {
    abort.abort();
    for (const file of opening) file.then((opened) => closeAll([opened]), () => {});
    stop?.check();
    throw error;
  }
}

/** @param {Iterable<ModelFile>} files */
export function closeAll(files) {
  for (const file of files) file.close().catch(() => {}); // a later worker deletes it
}

/** The model's own file. @param {Files} files */
export const ownFile = (files) => /** @type {ModelFile} */ (files.get(''));

/** A path as models write it. @param {string} path */
export const plain = (path) => path.replaceAll('\\', '/').replace(/^(\.\/)+/, '');

/**
 * Opens and checks the files with the weights of an exported Program: those that the caller listed, the others from addresses beside it.
 * @param {import('../programs/program_file.js').ExportedProgram} program @param {CreateParams} params @param {Files} files
 * @param {OnProgress} progress
 * @param {Stop | null} [stop]
 * @returns {Promise<Map<string, ModelFile>>} by name in the Program
 */
export async function weightsOf(program, { model }, files, progress, stop) {
  const all = new Map();
  const missing = [];
  for (const [name, file] of program.files) {
    const listed = lookUp(files, file);
    if (listed) all.set(name, listed);
    else missing.push({ path: name, origin: beside(model, file) });
  }
  for (const [name, file] of await openFiles(missing, progress, stop)) all.set(name, file);
  try {
    for (const [name, file] of all) program.check(name, file);
  } catch (error) {
    closeAll(all.values());
    throw error;
  }
  return all;
}

/**
 * The origin of a file beside the model. It depends on the address before redirects, because these may lead to a store without
 * folders.
 * @param {import('../../common/protocol.js').Origin} model @param {string} file
 */
export function beside(model, file) {
  if (!('url' in model)) {
    const hint = 'list it in the externalData option, or export with weights';
    throw new InvalidModel(`the weights of this program are in "${file}"`, { hint });
  }
  const path = plain(file).split('/').map(encodeURIComponent).join('/');
  return { url: new URL(`./${path}`, model.url).href, keep: model.keep, fetch: model.fetch };
}
