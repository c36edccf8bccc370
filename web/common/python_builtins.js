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

/** @template K @param {Keys<K, unknown>} a @param {Keys<K, unknown>} b @returns {Set<K>} */
export const difference = (a, b) => new Set([...a.keys()].filter((key) => !b.has(key)));

/** @template K @param {Keys<K, unknown>} a @param {Keys<K, unknown>} b @returns {Set<K>} */
export const intersection = (a, b) => new Set([...a.keys()].filter((key) => b.has(key)));

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

/** The first value with the least key. @template T @param {T[]} values @param {(value: T) => number} key @returns {T} */
export const minBy = (values, key) => values.reduce((best, value) => (key(value) < key(best) ? value : best));

/** The first value with the largest key. @template T @param {T[]} values @param {(value: T) => number} key @returns {T} */
export const maxBy = (values, key) => values.reduce((best, value) => (key(value) > key(best) ? value : best));

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
  if (!/^\s*[+-]?\d+\s*$/.test(text)) throw new ValueError(`"${text}" is no integer`);
  return Number(text);
}

/** `float(text)`. @param {string} text */
export function float(text) {
  const word = /^\s*([+-]?)(inf|infinity|nan)\s*$/i.exec(text);
  if (word) return word[2].toLowerCase() === 'nan' ? NaN : Number(`${word[1]}Infinity`);
  if (!/^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(text)) throw new ValueError(`"${text}" is no number`);
  return Number(text);
}

/** A number with so many decimals, as Python formats it: a tie rounds to the even digit. @param {number} x @param {number} places */
export function fixed(x, places) {
  if (!Number.isFinite(x)) return String(x).replace('NaN', 'nan').replace('Infinity', 'inf');
  if (Math.abs(x) >= 1e21) return `${BigInt(x)}${places ? `.${'0'.repeat(places)}` : ''}`;
  const text = `${Object.is(x, -0) ? '-' : ''}${x.toFixed(places)}`;
  const isTie = /50{29}$/.test(x.toFixed(places + 30));
  const last = Number(text.at(-1));
  return isTie && last % 2 === 1 ? `${text.slice(0, -1)}${last - 1}` : text;
}

/** `text.removeprefix(start)`. @param {string} text @param {string} start */
export const removeprefix = (text, start) => (text.startsWith(start) ? text.slice(start.length) : text);

/** `text.removesuffix(end)`. @param {string} text @param {string} end */
export const removesuffix = (text, end) => (text.endsWith(end) ? text.slice(0, text.length - end.length) : text);

/** `text.partition(part)`. @param {string} text @param {string} part @returns {[string, string, string]} */
export function partition(text, part) {
  const at = text.indexOf(part);
  return at < 0 ? [text, '', ''] : [text.slice(0, at), part, text.slice(at + part.length)];
}

/** `text.rpartition(part)`. @param {string} text @param {string} part @returns {[string, string, string]} */
export function rpartition(text, part) {
  const at = text.lastIndexOf(part);
  return at < 0 ? ['', '', text] : [text.slice(0, at), part, text.slice(at + part.length)];
}

/** `text.count(part)`. @param {string} text @param {string} part */
export const count = (text, part) => (part === '' ? [...text].length + 1 : text.split(part).length - 1);

// ── bytes and JSON ──

/** @param {Uint8Array[]} parts @returns {Uint8Array} */
export function concatenated(parts) {
  const whole = new Uint8Array(sum(parts.map((part) => part.length)));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** `int.from_bytes(bytes, order)`; integers beyond 2 ** 53 are rounded. @param {Uint8Array} bytes @param {boolean} isLittle */
export const fromBytes = (bytes, isLittle) => (isLittle ? [...bytes].reverse() : [...bytes]).reduce((value, byte) => value * 256 + byte, 0);

/** `value.to_bytes(length, order)`. @param {number} value @param {number} length @param {boolean} isLittle */
export function toBytes(value, length, isLittle) {
  if (value < 0 || value >= 256 ** length) throw new ValueError(`${value} does not fit ${length} bytes`);
  const bytes = Uint8Array.from({ length }, (_, n) => Math.floor(value / 256 ** n) % 256);
  return isLittle ? bytes : bytes.reverse();
}

/** `bytes.decode()`. @param {Uint8Array} bytes */
export function decode(bytes) {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new ValueError('the bytes are no text');
  }
}

/** `json.loads(text)`. @param {string | Uint8Array} text @returns {any} */
export function parseJson(text) {
  try {
    return JSON.parse(typeof text === 'string' ? text : decode(text));
  } catch {
    throw new ValueError('the text is no JSON');
  }
}
