// Strings of JSON as parts of grammars.

import { LAST, Node, complement } from '../../runtime/grammar.js';
import { readRegex, chars, choice, literal, repeat, sequence } from './regex.js';
import { refused } from './schema_parts.js';

const QUOTE = 0x22;
const BACKSLASH = 0x5C;
/** Controls that have short escapes. @type {Record<number, string>} */
const SHORT = { 8: '\\b', 9: '\\t', 10: '\\n', 12: '\\f', 13: '\\r' };
const [DAY, HOUR] = ['(?:0[1-9]|1[0-9]|2[0-8])', '(?:[01][0-9]|2[0-3])'];
const DATE = `[12][0-9]{3}-(?:(?:0[1-9]|1[0-2])-${DAY}|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)`;
const TIME = `${HOUR}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-]${HOUR}:[0-5][0-9])`;
const BYTE = '(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])';
const LABEL = '[a-z](?:[a-z0-9-]{0,20}[a-z0-9])?';
/** Texts of these formats: some of those that fit. */
const FORMATS = new Map(Object.entries({
  date: DATE, time: TIME, 'date-time': `${DATE}T${TIME}`, uuid: '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}', ipv4: `${BYTE}(?:\\.${BYTE}){3}`,
  hostname: `${LABEL}(?:\\.${LABEL}){0,3}`, email: `[a-z0-9]+(?:[.+_-][a-z0-9]+){0,3}@${LABEL}(?:\\.${LABEL}){1,3}`,
}));

/** @param {Node} text @returns {Node} */
export const inQuotes = (text) => sequence(literal('"'), text, literal('"'));

/** @param {unknown} value a text, number, boolean or null */
export const textOf = (value) => literal(JSON.stringify(value));

/** Characters of a string, with their escapes. @param {number} [least] @param {number} [most] -1: no limit */
export const escapedText = (least = 0, most = -1) => repeat(new Node('rule', [], [], 0, -1, CHARACTER), least, most);

/** The rule of one of them. */
export const CHARACTER = 'character';
export const character = () => escaped(chars(0, LAST));

/** @param {import('./schema_parts.js').Plain} one @param {string} at @returns {Node | null} */
export function stringOf({ minLength = 0, maxLength = Infinity, pattern, format }, at) {
  if (minLength > maxLength) return null;
  const isFree = pattern === undefined && format === undefined;
  if (isFree) return inQuotes(escapedText(minLength, maxLength === Infinity ? -1 : maxLength));
  if (minLength || maxLength < Infinity) throw refused(`${at}/${minLength ? 'minLength' : 'maxLength'}`, 'it is not known beside pattern and format; a pattern can count, such as ^[a-z]{2,5}$');
  if (pattern !== undefined && format !== undefined) throw refused(`${at}/format`, 'it is not known beside pattern');
  if (pattern !== undefined) return inQuotes(escaped(readRegex(pattern, `the schema of the format at ${at}/pattern`, true)));
  const known = FORMATS.get(format);
  if (!known) throw refused(`${at}/format`, `"${format}" is not known; ${[...FORMATS.keys()].join(', ')} are`);
  return inQuotes(readRegex(known));
}

/** The same texts with the escapes of JSON. @param {Node} node @returns {Node} */
function escaped(node) {
  if (node.kind !== 'chars') return Object.assign(sequence(), node, { parts: node.parts.map(escaped) });
  const has = (/** @type {number} */ code) => node.ranges.some((first, n) => n % 2 === 0 && first <= code && code <= node.ranges[n + 1]);
  const others = [QUOTE, BACKSLASH, ...Array(32).keys()].filter(has);
  const free = complement([...complement(node.ranges), QUOTE, QUOTE, BACKSLASH, BACKSLASH, 0, 31]);
  const found = others.map((code) => literal(code > 31 ? `\\${String.fromCharCode(code)}` : SHORT[code] ?? `\\u${code.toString(16).padStart(4, '0')}`));
  return choice(...free.length ? [chars(...free)] : [], ...found);
}
