// JSON schemas as grammars of JSON. Between values there is no space, or one after a colon or comma.

import { Node } from '../../runtime/grammar.js';
import { numberBetween } from './json_numbers.js';
import { CHARACTER, character, escapedText, inQuotes, stringOf, textOf } from './json_strings.js';
import { Parts, TYPES, isOf, refused } from './schema_parts.js';
import { choice, literal, optional, repeat, sequence } from './regex.js';

/** @typedef {import('./schema_parts.js').Plain} Plain */
/** @typedef {import('./schema_parts.js').Schema} Schema */

const MOST_DEPTH = 40; // of combined schemas that contain combined schemas
const MOST_RULES = 20_000;
const COMMA = sequence(literal(','), optional(literal(' ')));
const COLON = sequence(literal(':'), optional(literal(' ')));
const OTHERS = ['properties', 'required', 'minProperties', 'maxProperties', 'prefixItems', 'items', 'minItems', 'maxItems', 'uniqueItems', 'minLength', 'maxLength', 'pattern', 'format', 'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'];

/** The rules of a grammar for a schema, and the first one. Throws InvalidInput, which names the place. @param {Schema} schema */
export function readSchema(schema) {
  const grammar = new SchemaGrammar(schema);
  const root = grammar.value(schema, '#', 0);
  if (!root) throw refused('#', 'no value fits it');
  return { rules: grammar.rules, root: root.rule };
}

class SchemaGrammar {
  /** @type {Map<string, Node>} */
  rules = new Map([[CHARACTER, character()]]);
  /** Rules of schemas; null: no value fits. @type {Map<Schema, Node | null>} */
  known = new Map();

  /** @param {Schema} root */
  constructor(root) {
    this.parts = new Parts(root);
    this.root = root;
  }

  /** A rule for the values of a schema; null if no value fits. @param {Schema} schema @param {string} at @param {number} depth of schemas that are not in the given one @returns {Node | null} */
  value(schema, at, depth) {
    const found = this.known.get(schema);
    if (found !== undefined) return found;
    const isCombined = typeof schema === 'object' && Object.keys(schema ?? {}).join() === 'allOf';
    if (depth > MOST_DEPTH || this.rules.size > MOST_RULES) throw refused(at, 'it is too large, or combined schemas contain each other without an end');
    const rule = new Node('rule', [], [], 0, -1, `${this.rules.size}`);
    this.rules.set(rule.rule, choice());
    this.known.set(schema, rule);
    const nodes = this.parts.of(schema, at).flatMap((one) => this.plain(one, at, depth + Number(isCombined)));
    this.rules.set(rule.rule, choice(...nodes));
    if (!nodes.length) this.known.set(schema, null);
    return nodes.length ? rule : null;
  }

  /** @param {Plain} one @param {string} at @param {number} depth @returns {Node[]} */
  plain(one, at, depth) {
    if (one.enum) {
      const asked = OTHERS.find((name) => one[name] !== undefined && one.enum.some((/** @type {unknown} */ value) => concerns(name, value)));
      if (asked) throw refused(`${at}/${asked}`, 'it is not known beside enum and const');
      return one.enum.map((/** @type {unknown} */ value) => written(value));
    }
    const types = one.type ?? TYPES.filter((type) => type !== 'integer');
    return types.filter((/** @type {string} */ type) => type !== 'integer' || !types.includes('number')).flatMap((/** @type {string} */ type) => this.ofType(type, one, at, depth) ?? []);
  }

  /** @param {string} type @param {Plain} one @param {string} at @param {number} depth @returns {Node | null} null: no value fits */
  ofType(type, one, at, depth) {
    if (type === 'null') return literal('null');
    if (type === 'boolean') return choice(literal('true'), literal('false'));
    if (type === 'string') return stringOf(one, at);
    if (type === 'array') return this.array(one, at, depth);
    if (type === 'object') return this.object(one, at, depth);
    return numberBetween(one, type === 'integer', at);
  }

  /** @param {Plain} one @param {string} at @param {number} depth */
  array({ prefixItems = [], items = true, minItems = 0, maxItems = Infinity, uniqueItems = false }, at, depth) {
    if (uniqueItems && maxItems > 1) throw refused(`${at}/uniqueItems`, 'this keyword is not known');
    const first = prefixItems.map((/** @type {Schema} */ schema, /** @type {number} */ n) => this.value(schema, `${at}/prefixItems/${n}`, depth));
    const impossible = first.indexOf(null);
    const rest = impossible < 0 ? this.value(items, `${at}/items`, depth) : null;
    const fixed = impossible < 0 ? first : first.slice(0, impossible);
    const most = Math.min(maxItems, rest ? Infinity : fixed.length);
    if (most < minItems) return null;
    return sequence(literal('['), this.list(fixed.slice(0, most), rest, minItems, most), literal(']'));
  }

  /** Elements with commas between them. @param {Node[]} fixed @param {Node | null} rest @param {number} least @param {number} most */
  list(fixed, rest, least, most) {
    const behind = fixed.length;
    const limit = most === Infinity ? -1 : most;
    /** @type {Node} */
    let found = sequence();
    if (rest && most > behind) {
      const others = Math.max(behind, 1); // elements before those with a comma
      found = repeat(sequence(COMMA, rest), Math.max(0, least - others), limit < 0 ? -1 : limit - others);
      if (!behind) found = least ? sequence(rest, found) : optional(sequence(rest, found));
    }
    for (let n = behind; n--;) {
      const element = sequence(...n ? [COMMA] : [], fixed[n], found);
      found = n < least ? element : optional(element);
    }
    return found;
  }

  /** @param {Plain} one @param {string} at @param {number} depth @returns {Node | null} */
  object({ properties = {}, additionalProperties = true, required = [], minProperties = 0, maxProperties = Infinity }, at, depth) {
    const missing = required.filter((/** @type {string} */ name) => !Object.hasOwn(properties, name));
    const schemas = [...Object.entries(properties), ...missing.map((/** @type {string} */ name) => [name, additionalProperties])];
    /** @type {{ pair: Node, isRequired: boolean }[]} */
    const pairs = [];
    for (const [name, schema] of schemas) {
      const value = this.value(schema, `${at}/properties/${name}`, depth);
      const isRequired = required.includes(name);
      if (value) pairs.push({ pair: sequence(written(name), COLON, value), isRequired });
      else if (isRequired) return null;
    }
    const count = pairs.filter(({ isRequired }) => isRequired).length;
    if (count > maxProperties) return null;
    const inner = schemas.length ? this.pairs(pairs) : this.map(additionalProperties, minProperties, maxProperties, at, depth);
    if (schemas.length && minProperties > count) throw refused(`${at}/minProperties`, 'beside properties it is only known up to the number of required ones');
    if (schemas.length && maxProperties < pairs.length) throw refused(`${at}/maxProperties`, 'beside properties it is only known from their number on');
    return inner && sequence(literal('{'), inner, literal('}'));
  }

  /** Pairs in their order, optional ones or not. @param {{ pair: Node, isRequired: boolean }[]} pairs */
  pairs(pairs) {
    let [first, next] = [sequence(), sequence()]; // what follows if no pair is before, and behind another pair
    for (const { pair, isRequired } of pairs.reverse()) {
      const behind = this.named(next);
      const begun = sequence(pair, behind);
      first = isRequired ? begun : choice(begun, first);
      next = isRequired ? sequence(COMMA, begun) : choice(sequence(COMMA, begun), behind);
    }
    return first;
  }

  /** @param {Node} node */
  named(node) {
    const rule = new Node('rule', [], [], 0, -1, `${this.rules.size}`);
    this.rules.set(rule.rule, node);
    return rule;
  }

  /** Pairs of any names; the same name may be there twice. @param {Schema} schema @param {number} least @param {number} most @param {string} at @param {number} depth */
  map(schema, least, most, at, depth) {
    if (least > 1) throw refused(`${at}/minProperties`, 'without properties it is only known up to 1');
    const value = most ? this.value(schema, `${at}/additionalProperties`, depth) : null;
    if (!value) return least ? null : sequence();
    return this.list([], sequence(inQuotes(escapedText()), COLON, value), least, most);
  }
}

/** Whether a keyword says something of a value. @param {string} name @param {unknown} value */
function concerns(name, value) {
  const types = /properties|required/i.test(name) ? ['object'] : /items/i.test(name) ? ['array'] : /length|pattern|format/i.test(name) ? ['string'] : ['number'];
  return isOf(value, types);
}

/** A value of JSON, with spaces as in others. @param {Schema} value @returns {Node} */
function written(value) {
  if (Array.isArray(value)) return sequence(literal('['), ...value.flatMap((one, n) => [...n ? [COMMA] : [], written(one)]), literal(']'));
  if (typeof value !== 'object' || !value) return textOf(value);
  return sequence(literal('{'), ...Object.entries(value).flatMap(([name, one], n) => [...n ? [COMMA] : [], written(name), COLON, written(one)]), literal('}'));
}
