// What modules translated from Python (web/runtime/) need of Python's builtins. scripts/javascript/ writes the calls.

/** @template K, V @typedef {{ has(key: K): boolean, keys(): Iterable<K> }} Keys a set, or a map as the set of its keys */

/** `map[key]`. Throws if the key is missing. @template K, V @param {Map<K, V>} map @param {K} key @returns {V} */
export function item(map, key) {
  const value = map.get(key);
  if (value === undefined) throw new Error(`there is no key ${key}`);
  return value;
}

/** `object.get(key, otherwise)` of a JSON object. @template V, D @param {Record<string, V>} object @param {string} key @param {D} otherwise @returns {V | D} */
export const entry = (object, key, otherwise) => (Object.hasOwn(object, key) ? object[key] : otherwise);

/** `map.setdefault(key, value)`. @template K, V @param {Map<K, V>} map @param {K} key @param {V} value @returns {V} */
export function setDefault(map, key, value) {
  const found = map.get(key);
  if (found !== undefined) return found;
  map.set(key, value);
  return value;
}

/** `map.pop(key, otherwise)`. @template K, V, D @param {Map<K, V>} map @param {K} key @param {D} [otherwise] @returns {V | D} */
export function pop(map, key, otherwise) {
  const found = map.get(key);
  if (found === undefined && otherwise === undefined) throw new Error(`there is no key ${key}`);
  map.delete(key);
  return found === undefined ? /** @type {D} */ (otherwise) : found;
}

/** `list.pop(index)`, or undefined past the end. @template T @param {T[]} list @param {number} index @returns {T} */
export const popAt = (list, index) => list.splice(index, 1)[0];

/** `list.insert(index, value)`. @template T @param {T[]} list @param {number} index @param {T} value */
export const insert = (list, index, value) => list.splice(index, 0, value);

/** `list.index(value)`. @template T @param {T[]} list @param {T} value */
export function indexOf(list, value) {
  const at = list.indexOf(value);
  if (at < 0) throw new ValueError(`${value} is not in the list`);
  return at;
}

/** @template K, V @param {Map<K, V>} map @param {Iterable<[K, V]>} more */
export function updateMap(map, more) {
  for (const [key, value] of more) map.set(key, value);
}

/** @template K @param {Set<K>} set @param {Iterable<K>} more */
export function updateSet(set, more) {
  for (const key of more) set.add(key);
}

/** @template K @param {Keys<K, unknown>} a @param {Keys<K, unknown>} b @returns {Set<K>} */
export const difference = (a, b) => new Set([...a.keys()].filter((key) => !b.has(key)));

/** @template K @param {Keys<K, unknown>} a @param {Keys<K, unknown>} b */
export function isSubset(a, b) {
  for (const key of a.keys()) if (!b.has(key)) return false;
  return true;
}

/** @template K @param {Keys<K, unknown>} a @param {Keys<K, unknown>} b */
export function isDisjoint(a, b) {
  for (const key of a.keys()) if (b.has(key)) return false;
  return true;
}

/** @param {number[]} values */
export const sum = (values) => values.reduce((total, value) => total + value, 0);

/** @param {number[]} values */
export const product = (values) => values.reduce((total, value) => total * value, 1);

/** The smallest value, or the default of none. @param {number[]} values @param {number} [otherwise] */
export const minOf = (values, otherwise) => values.reduce((least, value) => (value < least ? value : least), values[0] ?? missing(otherwise));

/** The largest value, or the default of none. @param {number[]} values @param {number} [otherwise] */
export const maxOf = (values, otherwise) => values.reduce((most, value) => (value > most ? value : most), values[0] ?? missing(otherwise));

/** @param {number | undefined} otherwise @returns {number} */
function missing(otherwise) {
  if (otherwise === undefined) throw new Error('there are no values');
  return otherwise;
}

/** The remainder with the sign of the divisor. @param {number} a @param {number} b */
export const mod = (a, b) => a - Math.floor(a / b) * b;

/** The integers from `begin`, or from 0, up to `end`. @param {number} begin @param {number} [end] @returns {number[]} */
export const range = (begin, end) => (end === undefined ? range(0, begin) : Array.from({ length: Math.max(end - begin, 0) }, (_, n) => begin + n));

/** `zip(a, b, strict=…)`. @template A, B @param {readonly A[]} a @param {readonly B[]} b @param {boolean} [isStrict] @returns {[A, B][]} */
export function zip(a, b, isStrict = false) {
  if (isStrict && a.length !== b.length) throw new ValueError(`${a.length} and ${b.length} items to pair`);
  return Array.from({ length: Math.min(a.length, b.length) }, (_, n) => [a[n], b[n]]);
}

/** Whether numbers, texts, and nested lists of them are equal. @param {unknown} a @param {unknown} b @returns {boolean} */
export function same(a, b) {
  if (!Array.isArray(a) || !Array.isArray(b)) return a === b;
  return a.length === b.length && a.every((value, n) => same(value, b[n]));
}

/** @param {unknown} value @returns {value is Record<string, unknown>} */
export const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Whether Python takes a JSON value as true. @param {unknown} value @returns {boolean} */
export function truth(value) {
  if (typeof value !== 'object' || value === null) return Boolean(value);
  return (Array.isArray(value) ? value : Object.keys(value)).length > 0;
}

// ── numbers and texts ──

/** Python's, of what has the right type and a wrong value. */
export class ValueError extends Error {}

/** `int(text)`. @param {string} text */
export function integer(text) {
  if (!/^\s*[+-]?\d+(_\d+)*\s*$/.test(text)) throw new ValueError(`"${text}" is no integer`);
  return Number(text.replaceAll('_', ''));
}
