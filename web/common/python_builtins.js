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

/** `list.pop(index)`. @template T @param {T[]} list @param {number} index @returns {T} */
export const popAt = (list, index) => list.splice(index, 1)[0];

/** `list.insert(index, value)`. @template T @param {T[]} list @param {number} index @param {T} value */
export const insert = (list, index, value) => list.splice(index, 0, value);

/** @template K, V @param {Map<K, V>} map @param {Iterable<[K, V]>} more */
export function updateMap(map, more) {
  for (const [key, value] of more) map.set(key, value);
}

/** @template K @param {Set<K>} set @param {Iterable<K>} more */
export function updateSet(set, more) {
  for (const key of more) set.add(key);
}

/** @template K @param {Set<K>} set @param {Iterable<K>} others */
export function removeAll(set, others) {
  for (const key of others) set.delete(key);
}

/** @template K @param {Keys<K, any>} a @param {Keys<K, any>} b @returns {Set<K>} */
export const difference = (a, b) => new Set([...a.keys()].filter((key) => !b.has(key)));

/** @template K @param {Keys<K, any>} a @param {Keys<K, any>} b @returns {Set<K>} */
export const intersection = (a, b) => new Set([...a.keys()].filter((key) => b.has(key)));

/** @template K @param {Keys<K, any>} a @param {Keys<K, any>} b */
export function isSubset(a, b) {
  for (const key of a.keys()) if (!b.has(key)) return false;
  return true;
}

/** @template K @param {Keys<K, any>} a @param {Keys<K, any>} b */
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

/** The first value with the least key. @template T @param {T[]} values @param {(value: T) => number} key @returns {T} */
export const minBy = (values, key) => values.reduce((best, value) => (key(value) < key(best) ? value : best));

/** The first value with the largest key. @template T @param {T[]} values @param {(value: T) => number} key @returns {T} */
export const maxBy = (values, key) => values.reduce((best, value) => (key(value) > key(best) ? value : best));

/** The remainder with the sign of the divisor. @param {number} a @param {number} b */
export const mod = (a, b) => a - Math.floor(a / b) * b;

/** The integers from `begin`, or from 0, up to `end`. @param {number} begin @param {number} [end] @returns {number[]} */
export const range = (begin, end) => (end === undefined ? range(0, begin) : Array.from({ length: Math.max(end - begin, 0) }, (_, n) => begin + n));

/** @template A, B @param {readonly A[]} a @param {readonly B[]} b @returns {[A, B][]} */
export const zip = (a, b) => Array.from({ length: Math.min(a.length, b.length) }, (_, n) => [a[n], b[n]]);

/** Whether numbers, texts, and nested lists of them are equal. @param {any} a @param {any} b @returns {boolean} */
export function same(a, b) {
  if (!Array.isArray(a) || !Array.isArray(b)) return a === b;
  return a.length === b.length && a.every((value, n) => same(value, b[n]));
}

/** @param {any} value @returns {value is Record<string, any>} */
export const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Whether Python takes a JSON value as true. @param {any} value @returns {boolean} */
export function truth(value) {
  if (typeof value !== 'object' || value === null) return Boolean(value);
  return (Array.isArray(value) ? value : Object.keys(value)).length > 0;
}
