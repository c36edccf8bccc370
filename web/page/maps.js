// Outputs of a ZipMap: what runs gives its scores, and programs get maps (docs/adr/0057).

import { Tensor } from 'onnxruntime-common';
import { InvalidInput } from '../common/errors.js';

/** @typedef {import('../common/protocol.js').ValueInfo} ValueInfo */
/** @typedef {Map<string | number, number>} Scores by class, in the order of the classes */

/** Those of a session's outputs that are maps: their classes, by name. @param {ValueInfo[]} outputs */
export const mapsAmong = (outputs) => new Map(outputs.flatMap(({ name, classes }) => (classes ? [[name, classes]] : [])));

/** Refuses tensors to fill for outputs that are maps. @param {Map<string, unknown>} maps @param {Record<string, Tensor | null>} fetches */
export function checkFetches(maps, fetches) {
  for (const [name, into] of Object.entries(fetches)) {
    if (into && maps.has(name)) throw new InvalidInput(`output "${name}" is a sequence of maps, which no tensor holds`, { hint: 'fetch it by name' });
  }
}

/**
 * A map for each row of scores.
 * @param {string} name @param {Tensor} scores (rows, classes) or (classes) @param {(string | number)[]} classes
 * @returns {Scores[]}
 */
export function toMaps(name, { data, dims }, classes) {
  const columns = classes.length;
  if (dims.length < 1 || dims.length > 2 || dims.at(-1) !== columns) {
    throw new InvalidInput(`output "${name}": ${columns} classes do not fit scores of shape [${dims.join(', ')}]`);
  }
  const order = [...classes.keys()].sort((a, b) => (classes[a] < classes[b] ? -1 : 1));
  const rows = dims.length === 2 ? dims[0] : 1;
  return Array.from({ length: rows }, (_, row) => new Map(order.map((column) => [classes[column], Number(data[row * columns + column])])));
}
