// Reads parts of the files of a model, by their names in it.

import { InvalidModel } from '../../common/errors.js';

/** @import { Files } from './model_file.js' */

/** Finds a file by its path in the model, or by its name alone. @param {Files} files @param {string} name */
export const lookUp = (files, name) => files.get(name) ?? files.get(name.slice(name.lastIndexOf('/') + 1));

/** A function that reads parts of a model's files. @param {Files} files @returns {import('../../run/environment.js').ReadFile} */
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
  read.until = (end, name = '') => lookUp(files, name)?.arrival?.until(end) ?? null;
  return read;
}
