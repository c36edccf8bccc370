// Checks data against a schema: interprets the part of JSON Schema (draft 2020-12) that pyruntime/program/schema.json uses.
// pyruntime/program/schema.py is its twin; tests/test_contract.py checks that both give the same messages.

import { SCHEMA } from './program_schema.js';

/** @typedef {Record<string, any>} Rule */
/** Bytes of the "blob", and lengths of the lists that indices point into. @typedef {Record<string, number>} Limits */
/** Returns "", or the place and the error. @typedef {(data: any, limits: Limits) => string} Check */

/** @type {Record<string, (data: any) => boolean>} */
const TYPES = {
  object: (data) => typeof data === 'object' && data !== null && !Array.isArray(data),
  array: Array.isArray,
  string: (data) => typeof data === 'string',
  integer: Number.isInteger,
  boolean: (data) => typeof data === 'boolean',
  null: (data) => data === null,
};
/** @type {Record<string, string>} */
const NAMES = { object: 'an object', array: 'a list', string: 'text', integer: 'an integer', boolean: 'true or false', null: 'null' };

/** @type {Map<string, Check>} */
const definitions = new Map();

/** The first error of a header, in a few words, or "". @param {any} header @param {Limits} limits */
export const refusal = (header, limits) => definition('')(header, limits);

/** @param {string} name "" for the whole @returns {Check} */
function definition(name) {
  let found = definitions.get(name);
  if (!found) definitions.set(name, found = checkOf(name ? SCHEMA.$defs[name] : SCHEMA));
  return found;
}

/** @param {string} reference */
const nameOf = (reference) => reference.slice(reference.lastIndexOf('/') + 1);

/** A function that checks data against a rule. @param {Rule} rule @returns {Check} */
function checkOf(rule) {
  if ('$ref' in rule) return (data, limits) => definition(nameOf(rule.$ref))(data, limits); // lazily: rules may be recursive
  if ('anyOf' in rule) return rule.nesting ? nested(anyOf(rule.anyOf), rule.nesting) : anyOf(rule.anyOf);
  if ('const' in rule) return (data) => (data === rule.const ? '' : `: ${quoted(rule.const)} expected`);
  if ('enum' in rule) return (data) => (rule.enum.includes(data) ? '' : `: ${quoted(data)} is not known`);
  const inner = MORE[rule.type]?.(rule) ?? (() => '');
  return (data, limits) => (TYPES[rule.type](data) ? inner(data, limits) : `: ${NAMES[rule.type]} expected`);
}

/** @param {Rule} rule @returns {Check} */
function objectOf({ properties = {}, required = [], additionalProperties: others = true }) {
  const known = new Map(Object.entries(properties).map(([key, rule]) => [key, checkOf(rule)]));
  const rest = typeof others === 'object' ? checkOf(others) : null;
  return (data, limits) => {
    const missing = required.find((/** @type {string} */ key) => !Object.hasOwn(data, key));
    if (missing !== undefined) return `: ${quoted(missing)} is missing`;
    for (const [key, value] of Object.entries(data)) {
      const inner = known.get(key) ?? rest;
      if (!inner && !others) return `: ${quoted(key)} is not known`;
      const wrong = inner?.(value, limits);
      if (wrong) return `.${key}${wrong}`;
    }
    return '';
  };
}

/** @param {Rule} rule @returns {Check} */
function arrayOf({ prefixItems = [], items, minItems = 0, maxItems = Infinity, within }) {
  const first = prefixItems.map(checkOf);
  const rest = items && checkOf(items);
  return (data, limits) => {
    if (data.length < minItems || data.length > maxItems) return `: it has ${data.length} entries`;
    for (let n = 0; n < data.length; n++) {
      const wrong = (first[n] ?? rest)?.(data[n], limits);
      if (wrong) return `[${n}]${wrong}`;
    }
    const end = data[0] + data[1];
    if (within && end > limits[within]) return `: it ends at ${end}, the ${within} at ${limits[within]}`;
    return '';
  };
}

/** @param {Rule} rule @returns {Check} */
function integerOf({ minimum, maximum = Infinity, indexOf }) {
  return (data, limits) => {
    if (indexOf && data >= (limits[indexOf] ?? 0)) return `: there are only ${limits[indexOf] ?? 0} ${indexOf}`;
    return data >= minimum && data <= maximum ? '' : ': it is out of range';
  };
}

/** @param {Rule} rule @returns {Check} */
function stringOf({ minLength = 0 }) {
  return (data) => (data.length >= minLength ? '' : ': it is empty');
}

/** The error comes from the alternative whose outer shape fits. @param {Rule[]} rules @returns {Check} */
function anyOf(rules) {
  const choices = rules.map((rule) => ({ fits: hasKind(rule), inner: checkOf(rule) }));
  return (data, limits) => {
    const choice = choices.find(({ fits }) => fits(data));
    return choice ? choice.inner(data, limits) : ': it has none of the forms that it may have';
  };
}

/**
 * Whether data are of the kind of an alternative: its type, its keys, its constants.
 * @param {Rule} rule @returns {(data: any) => boolean}
 */
function hasKind(rule) {
  if ('$ref' in rule) return hasKind(SCHEMA.$defs[nameOf(rule.$ref)]);
  if ('enum' in rule) return (data) => data !== null;
  const fits = TYPES[rule.type];
  if (rule.type === 'object') {
    const properties = Object.entries(/** @type {Record<string, Rule>} */ (rule.properties));
    const tags = properties.map(([key, inner]) => ({ key, values: words(inner) })).filter(({ values }) => values.length);
    if (tags.length) return (data) => fits(data) && tags.every(({ key, values }) => Object.hasOwn(data, key) && values.includes(data[key]));
    return (data) => fits(data) && rule.required.every((/** @type {string} */ key) => Object.hasOwn(data, key));
  }
  if (!rule.prefixItems) return fits;
  const values = words(rule.prefixItems[0]);
  return (data) => fits(data) && values.includes(data[0]);
}

/** Checks besides the type. @type {Record<string, (rule: Rule) => Check>} */
const MORE = { object: objectOf, array: arrayOf, integer: integerOf, string: stringOf };

/** The words that distinguish an alternative. @param {Rule} rule @returns {any[]} */
const words = (rule) => (rule.enum ?? [rule.const]).filter((/** @type {any} */ value) => typeof value === 'string');

/** Refuses lists that are nested too deeply, before `inner` recurses. @param {Check} inner @param {number} most @returns {Check} */
function nested(inner, most) {
  return (data, limits) => {
    let level = [data];
    for (let depth = 1; level.length; depth++) {
      level = level.flatMap((part) => (Array.isArray(part) ? part : []));
      if (depth > most) return ': it is nested too deeply';
    }
    return inner(data, limits);
  };
}

/** @param {any} data */
const quoted = (data) => JSON.stringify(data).slice(0, 60);
