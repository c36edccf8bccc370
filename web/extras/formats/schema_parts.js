// Schemas without references and combinations: `parts` makes a list of them, any of which a value may fit.
// Sources: https://json-schema.org/draft/2020-12/json-schema-core and json-schema-validation

import { InvalidInput } from '../../common/errors.js';

/** An object of JSON, true or false. @typedef {ReturnType<typeof JSON.parse>} Schema */
/** A schema of the keywords in COMBINED and EXACT alone. @typedef {Record<string, Schema>} Plain */

export const TYPES = ['null', 'boolean', 'integer', 'number', 'string', 'array', 'object'];
const MOST_PARTS = 256;
const REFUSED = [
  'not', 'if', 'then', 'else', 'dependentSchemas', 'dependentRequired', 'dependencies', 'contains', 'minContains', 'maxContains', 'unevaluatedItems',
  'unevaluatedProperties', 'propertyNames', 'patternProperties', 'multipleOf', '$dynamicRef', '$recursiveRef', 'extends', 'disallow', 'divisibleBy',
];

const bound = (/** @type {(a: number, b: number) => number} */ of) => (/** @type {number} */ a, /** @type {number} */ b) => of(a, b);
/** By keyword: what two schemas ask for together. @type {Record<string, (a: Schema, b: Schema) => Schema>} */
const COMBINED = {
  type: (a, b) => narrowed(a, b), enum: (a, b) => a.filter((/** @type {unknown} */ one) => b.some((/** @type {unknown} */ other) => isSame(one, other))),
  required: (a, b) => [...new Set([...a, ...b])],
  ...Object.fromEntries(['minimum', 'exclusiveMinimum', 'minLength', 'minItems', 'minProperties'].map((name) => [name, bound(Math.max)])),
  ...Object.fromEntries(['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems', 'maxProperties'].map((name) => [name, bound(Math.min)])),
};
/** Keywords that two schemas only have together if they are equal. */
const EXACT = ['pattern', 'format'];
const OBJECTS = ['properties', 'additionalProperties'];
const LISTS = ['prefixItems', 'items', 'uniqueItems'];

/** @param {string} step of a reference */
function unescaped(step) {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}

/** Whether two values of JSON are equal. @param {unknown} a @param {unknown} b @returns {boolean} */
export function isSame(a, b) {
  if (typeof a !== 'object' || typeof b !== 'object' || !a || !b) return a === b;
  const [those, these] = [Object.entries(a), Object.keys(b)];
  return Array.isArray(a) === Array.isArray(b) && those.length === these.length && those.every(([name, one]) => Object.hasOwn(b, name) && isSame(one, /** @type {Schema} */ (b)[name]));
}

/** Types that both lists allow; an integer is a number. @param {string[]} a @param {string[]} b */
const narrowed = (a, b) => TYPES.filter((type) => [a, b].every((list) => list.includes(type) || (type === 'integer' && list.includes('number')))
  && !(type === 'integer' && a.includes('number') && b.includes('number')));

/** @param {string} at the place in the schema @param {string} text */
export const refused = (at, text) => new InvalidInput(`the schema of the format is refused at ${at}: ${text}`, { hint: 'the page Chat of the documentation lists the keywords that are known' });

export class Parts {
  /** @param {Schema} root */
  constructor(root) {
    this.root = root;
  }

  /**
   * What a value may fit. Throws InvalidInput, which names the place.
   * @param {Schema} schema @param {string} at its place @param {readonly Schema[]} [around] schemas that refer to it without a value in between
   * @returns {Plain[]}
   */
  of(schema, at, around = []) {
    if (schema === true) return [{}];
    if (schema === false) return [];
    if (typeof schema !== 'object' || !schema || Array.isArray(schema)) throw refused(at, `a schema is an object, not ${JSON.stringify(schema)}`);
    if (around.includes(schema)) throw refused(at, 'it refers to itself without a value in between');
    const inner = [...around, schema];
    let found = [plain(schema, at)];
    const also = (/** @type {Plain[]} */ others) => {
      found = found.flatMap((one) => others.map((other) => this.both(one, other, at))).filter((one) => one !== null);
      if (found.length > MOST_PARTS) throw refused(at, `it combines more than ${MOST_PARTS} schemas`);
    };
    if (schema.$ref !== undefined) also(this.of(this.target(schema.$ref, `${at}/$ref`), schema.$ref, inner));
    for (const [n, one] of listOf(schema, 'allOf', at).entries()) also(this.of(one, `${at}/allOf/${n}`, inner));
    for (const name of ['anyOf', 'oneOf']) {
      const lists = listOf(schema, name, at).map((one, n) => this.of(one, `${at}/${name}/${n}`, inner));
      if (name === 'oneOf') this.checkApart(lists, at);
      if (schema[name] !== undefined) also(lists.flat());
    }
    return found;
  }

  /** The schema that a reference means. @param {unknown} ref @param {string} at @returns {Schema} */
  target(ref, at) {
    if (typeof ref !== 'string' || !/^#(\/|$)/.test(ref)) throw refused(at, `the reference ${JSON.stringify(ref)} is not known; those in the schema begin with #/`);
    let found = this.root;
    for (const step of ref.slice(1).split('/').slice(1)) {
      const name = unescaped(step).replaceAll('~1', '/').replaceAll('~0', '~');
      if (typeof found !== 'object' || !found || !Object.hasOwn(found, name)) throw refused(at, `there is nothing at ${ref}`);
      found = found[name];
      if (typeof found === 'object' && found && found !== this.root && typeof found.$id === 'string') throw refused(at, 'it leads into a schema with an $id of its own');
    }
    return found;
  }

  /** Throws InvalidInput unless no value fits two of the lists. @param {Plain[][]} lists @param {string} at */
  checkApart(lists, at) {
    for (const [n, list] of lists.entries()) {
      for (const [m, other] of lists.entries()) {
        if (m < n && list.some((a) => other.some((b) => !this.areApart(a, b, at)))) throw refused(`${at}/oneOf`, `a value may fit both ${m} and ${n}; anyOf allows that`);
      }
    }
  }

  /** Whether certainly no value fits both. @param {Plain} a @param {Plain} b @param {string} at */
  areApart(a, b, at) {
    const both = this.both(a, b, at, true);
    if (!both) return true;
    const names = /** @type {string[]} */ (both.required ?? []);
    const isOnlyObject = both.type && both.type.every((/** @type {string} */ type) => type === 'object');
    return isOnlyObject && names.some((name) => both.properties?.[name] !== undefined && !this.of(both.properties[name], at).length);
  }

  /** A schema for what fits both; null if nothing does. isTest: values are not generated from it @param {Plain} a @param {Plain} b @param {string} at @param {boolean} [isTest] @returns {Plain | null} */
  both(a, b, at, isTest = false) {
    /** @type {Plain} */
    const found = { ...a, ...b };
    for (const [name, combine] of Object.entries(COMBINED)) if (a[name] !== undefined && b[name] !== undefined) found[name] = combine(a[name], b[name]);
    for (const name of EXACT) {
      if (a[name] !== undefined && b[name] !== undefined && a[name] !== b[name] && !isTest) throw refused(at, `two schemas with ${name} are combined`);
    }
    if (OBJECTS.some((name) => a[name] !== undefined) && OBJECTS.some((name) => b[name] !== undefined)) Object.assign(found, properties(a, b));
    if (LISTS.some((name) => a[name] !== undefined) && LISTS.some((name) => b[name] !== undefined)) Object.assign(found, items(a, b));
    if (found.enum) found.enum = found.enum.filter((/** @type {unknown} */ value) => isOf(value, found.type ?? TYPES));
    const isEmpty = [found.type, found.enum].some((list) => list?.length === 0) || (isNumber(found) && isBelow(found));
    return isEmpty ? null : found;
  }
}

/** @param {Plain} one */
const isNumber = ({ type }) => type?.every((/** @type {string} */ name) => name === 'number' || name === 'integer');

/** Whether its numbers end before they begin. @param {Plain} one */
function isBelow({ minimum = -Infinity, maximum = Infinity, exclusiveMinimum = -Infinity, exclusiveMaximum = Infinity }) {
  return minimum > maximum || minimum >= exclusiveMaximum || exclusiveMinimum >= maximum || exclusiveMinimum >= exclusiveMaximum;
}

/** @param {unknown} value @param {readonly string[]} types */
export function isOf(value, types) {
  if (value === null) return types.includes('null');
  if (Array.isArray(value)) return types.includes('array');
  if (typeof value === 'number') return types.includes('number') || (Number.isInteger(value) && types.includes('integer'));
  return types.includes(typeof value);
}

/** @param {Plain} a @param {Plain} b */
function properties(a, b) {
  /** @type {Record<string, Schema>} */
  const found = Object.create(null);
  for (const name of new Set([a, b].flatMap((one) => Object.keys(one.properties ?? {})))) {
    const of = (/** @type {Plain} */ { properties: own, additionalProperties }) => (own && Object.hasOwn(own, name) ? own[name] : additionalProperties);
    found[name] = joined(of(a), of(b));
  }
  return { properties: found, additionalProperties: joined(a.additionalProperties, b.additionalProperties) };
}

/** @param {Plain} a @param {Plain} b */
function items(a, b) {
  const length = Math.max(...[a, b].map(({ prefixItems = [] }) => prefixItems.length));
  const of = (/** @type {Plain} */ one, /** @type {number} */ n) => (n < (one.prefixItems?.length ?? 0) ? one.prefixItems[n] : one.items);
  return {
    prefixItems: Array.from({ length }, (_, n) => joined(of(a, n), of(b, n))), items: joined(a.items, b.items),
    uniqueItems: Boolean(a.uniqueItems || b.uniqueItems),
  };
}

/** @param {Schema} a @param {Schema} b @returns {Schema} */
const joined = (a = true, b = true) => (a === true ? b : b === true || a === b ? a : { allOf: [a, b] });

/** @param {Schema} schema @param {string} name @param {string} at @returns {Schema[]} */
function listOf(schema, name, at) {
  const found = schema[name] ?? [];
  if (!Array.isArray(found) || (name in schema && !found.length)) throw refused(`${at}/${name}`, 'a list of schemas is expected');
  return found;
}

const COUNTS = ['minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties'];
const NUMBERS = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'];
const isList = (/** @type {unknown} */ value) => Array.isArray(value);
const isObject = (/** @type {unknown} */ value) => typeof value === 'object' && value !== null && !isList(value);
const isSchema = (/** @type {unknown} */ value) => typeof value === 'boolean' || isObject(value);
/** By keyword: whether a value fits it. @type {Record<string, (value: Schema) => boolean>} */
const FITS = {
  ...Object.fromEntries(COUNTS.map((name) => [name, (value) => Number.isInteger(value) && value >= 0])),
  ...Object.fromEntries(NUMBERS.map((name) => [name, Number.isFinite])),
  type: (value) => [value].flat().length > 0 && [value].flat().every((type) => TYPES.includes(type)),
  enum: isList, const: () => true, required: (value) => isList(value) && value.every((/** @type {unknown} */ name) => typeof name === 'string'),
  properties: isObject, additionalProperties: isSchema, prefixItems: isList, items: (value) => isList(value) || isSchema(value), additionalItems: isSchema,
  uniqueItems: (value) => typeof value === 'boolean', pattern: (value) => typeof value === 'string', format: (value) => typeof value === 'string',
};

/** The keywords of a schema alone, without combinations. Throws InvalidInput. @param {Record<string, Schema>} schema @param {string} at @returns {Plain} */
function plain(schema, at) {
  const found = /** @type {Plain} */ ({});
  for (const [name, value] of Object.entries(schema)) {
    if (REFUSED.includes(name)) throw refused(`${at}/${name}`, 'this keyword is not known');
    if (!Object.hasOwn(FITS, name)) continue; // it describes, or combines
    if (!FITS[name](value)) throw refused(`${at}/${name}`, `its value cannot be ${JSON.stringify(value)}`);
    found[name] = value;
  }
  if (found.type) found.type = [found.type].flat();
  if ('const' in found) found.enum = (found.enum ?? [found.const]).filter((/** @type {unknown} */ one) => isSame(one, found.const));
  if (found.enum && found.type) found.enum = found.enum.filter((/** @type {unknown} */ one) => isOf(one, found.type));
  const { const: _, additionalItems, ...others } = found;
  if (!isList(others.items)) return others;
  const { items: prefixItems, ...rest } = others; // before draft 2020-12
  return { ...rest, prefixItems, ...additionalItems === undefined ? {} : { items: additionalItems } };
}
