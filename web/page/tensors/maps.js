// Converts maps (docs/design/onnxruntime.md#maps): Programs take a row for each map that a caller feeds, and return scores for each map
// that a caller gets.

import { InvalidInput } from '../../common/errors.js';
import { NewTensor } from './new_tensor.js';

/** @import { ValueInfo } from '../../common/protocol.js' */
/** @typedef {Map<string | number, number>} Scores by class, sorted */

/**
 * Replaces the maps among feeds by rows.
 * @template {object} T @param {T} feeds @param {ValueInfo[]} inputs @returns {T}
 */
export function rowsOfMaps(feeds, inputs) {
  const rows = inputs.filter(({ map }) => map);
  if (!rows.length || typeof feeds !== 'object' || feeds === null) return feeds;
  const maps = new Set(rows.map(({ map }) => map?.input));
  const others = Object.entries(feeds).filter(([name]) => !maps.has(name));
  return /** @type {T} */ (Object.fromEntries([...others, ...rows.map((info) => [info.name, row(info, feeds)])]));
}

/** @param {ValueInfo} info @param {object} feeds */
function row({ map, dtype }, feeds) {
  const { input, key, keys, length } = /** @type {import('../../common/protocol.js').MapInfo} */ (map);
  const feed = /** @type {Record<string, unknown>} */ (feeds)[input];
  if (feed === undefined) throw new InvalidInput(`input "${input}" is missing`);
  const hint = `a Map with keys of ${key}, or an object`;
  if (typeof feed !== 'object' || feed === null || feed instanceof NewTensor || Array.isArray(feed)) {
    throw new InvalidInput(`input "${input}" is a map`, { hint });
  }
  const entries = Symbol.iterator in feed ? [.../** @type {Map<unknown, unknown>} */ (feed)] : Object.entries(feed); // also a Map of another frame
  const named = new Map(entries.map(([name, value]) => [key === 'string' ? name : Number(name), value]));
  const fits = key === 'string' ? (/** @type {unknown} */ name) => typeof name === 'string' : Number.isSafeInteger;
  if (![...named.keys()].every(fits)) throw new InvalidInput(`input "${input}" has a key that is no ${key}`, { hint });
  const values = keys ? keys.map((name) => named.get(name)) : length === null ? sorted(named) : placed(named, length, input);
  const absent = dtype !== 'string' ? 0 : keys ? '' : '0.f';
  const data = values.map((value) => element(input, value ?? absent, /** @type {string} */ (dtype), keys !== null));
  return new NewTensor(/** @type {string} */ (dtype), data, [1, data.length]);
}

/** @param {Map<unknown, unknown>} named */
const sorted = (named) => [...named].sort(([a], [b]) => Number(a) - Number(b)).map(([, value]) => value);

/** @param {Map<unknown, unknown>} named @param {number} length @param {string} input */
function placed(named, length, input) {
  const values = new Array(length).fill(undefined);
  for (const [key, value] of named) {
    const place = Number(key);
    if (place < 0) throw new InvalidInput(`input "${input}": key ${place} is negative`);
    if (place < length) values[place] = value; // as in onnxruntime, larger keys are ignored
  }
  return values;
}

/** @param {string} input @param {unknown} value @param {string} dtype @param {boolean} isExact whether no CastMap converts it */
function element(input, value, dtype, isExact) {
  const text = typeof value === 'string';
  const number = text && !isExact && value.trim() ? Number(value) : value;
  const counts = typeof number === 'number' && !(text && Number.isNaN(number)) || typeof number === 'bigint';
  if (dtype === 'string' && (text || !isExact && counts)) return text ? value : Number(value).toFixed(6);
  if (dtype === 'int64' && typeof number === 'bigint') return number;
  if (dtype === 'int64' && counts && Number.isFinite(number)) return BigInt(Math.trunc(Number(number)));
  if (dtype.startsWith('float') && counts) return Number(number);
  throw new InvalidInput(`input "${input}" has a value of another type: ${String(value)}`);
}

/**
 * Refuses tensors to fill for outputs that are maps.
 * @param {Map<string, unknown>} maps @param {Record<string, import('onnxruntime-common').Tensor | null>} fetches
 */
export function checkFetches(maps, fetches) {
  for (const [name, into] of Object.entries(fetches)) {
    if (!into || !maps.has(name)) continue;
    throw new InvalidInput(`output "${name}" is a sequence of maps, which no tensor holds`, { hint: 'fetch it by name' });
  }
}

/**
 * A map for each row of scores.
 * @param {string} name @param {import('onnxruntime-common').Tensor} scores (rows, classes) or (classes) @param {(string | number)[]} classes
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
