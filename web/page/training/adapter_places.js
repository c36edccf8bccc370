// Where the tensors of an adapter go in the inputs of a Program, which has no Python to decide it.

import { InvalidInput, InvalidModel } from '../../common/errors.js';
import { isObject } from '../../common/python_builtins.js';
import { fits, pairsOf, placesOf, rowsInProgram } from '../../runtime/adapter_places.js';

/** @import { AdaptersInfo, ValueInfo } from '../../common/protocol.js' */
/** @import { Places } from '../../runtime/adapter_places.js' */
/** @import { Adapter } from './adapter_file.js' */

/**
 * @param {AdaptersInfo} info @param {ValueInfo[]} inputs of the Program @param {string} name of the adapter, for messages
 * @param {Adapter} adapter @returns {Places} Errors: InvalidInput for what does not fit
 */
export function placesIn({ modules, slots }, inputs, name, { tensors, config }) {
  const shapes = new Map(Object.entries(tensors).map(([tensor, { shape }]) => [tensor, shape]));
  const pairs = () => pairsOf(shapes, config, isEndOf);
  return placesOf(shapes, pairs, slots, shapesOf(inputs), (pair) => rowsInProgram(modules, slots, pair, name), name);
}

/** Refuses places outside of the inputs. @param {AdaptersInfo} info @param {ValueInfo[]} inputs of the Program */
export function checkInfo({ modules, slots, defaults, rowsA, rowsB }, inputs) {
  if (isObject(defaults) && fits(modules, slots, Object.keys(defaults), [rowsA, rowsB], shapesOf(inputs))) return;
  throw new InvalidModel('the program is damaged: its places for adapters do not fit its inputs', { hint: 'export it again' });
}

/** @param {ValueInfo[]} inputs */
const shapesOf = (inputs) => new Map(inputs.map(({ name, shape }) => [name, shape ?? []]));

/** Whether a module's name, or its last parts, are these. @param {string} pattern of `alpha_pattern` @param {string} module */
function isEndOf(pattern, module) {
  const plain = pattern.replace(/\\\./g, '.').replace(/^\^|\$$/g, '');
  if (!/^[\w.]+$/.test(plain)) { // a regular expression from a file can take a browser's matcher for ever
    throw new InvalidInput(`alpha_pattern "${pattern}" is a regular expression`, { hint: 'open the ONNX model, or name modules' });
  }
  return module === plain || !pattern.startsWith('^') && module.endsWith(`.${plain}`);
}
