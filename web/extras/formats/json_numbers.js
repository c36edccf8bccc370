// Numbers of JSON between bounds, as parts of grammars.

import { chars, choice, literal, optional, repeat, sequence } from './regex.js';
import { refused } from './schema_parts.js';

/** @typedef {import('../../runtime/grammar.js').Node} Node */

const MOST = 999_999_999_999_999; // 15 digits: a number of JavaScript and of JSON alike
const digit = (low = '0', high = '9') => chars(low.charCodeAt(0), high.charCodeAt(0));
const MOST_BEFORE = 999_999_999; // before a fraction, so that rounding passes no bound
const FRACTION = sequence(literal('.'), repeat(digit(), 0, 5), digit('1'));

/**
 * The numbers of a schema; null if there are none. Those with a fraction lie between two whole numbers that both fit, and have no exponent beside a bound.
 * @param {import('./schema_parts.js').Plain} one @param {boolean} isWhole @param {string} at @returns {Node | null}
 */
export function numberBetween({ minimum = -Infinity, maximum = Infinity, exclusiveMinimum = -Infinity, exclusiveMaximum = Infinity }, isWhole, at) {
  const [least, most] = [Math.max(minimum, exclusiveMinimum), Math.min(maximum, exclusiveMaximum)];
  let [low, high] = [Math.ceil(least), Math.floor(most)];
  if (low === exclusiveMinimum) low++;
  if (high === exclusiveMaximum) high--;
  if (low > MOST || high < -MOST) throw refused(at, 'its numbers have more than 15 digits');
  const isFree = least === -Infinity && most === Infinity;
  const [from, to] = [Math.max(low, -MOST), Math.min(high, MOST)];
  /** @type {Node[]} */
  const found = [];
  if (from <= to) found.push(...whole(from, to));
  if (!isWhole) found.push(...fractions(Math.max(Math.ceil(least), -MOST_BEFORE), Math.min(Math.floor(most), MOST_BEFORE)));
  if (!found.length && !isWhole && least < most) throw refused(at, 'its bounds are too near: no whole number is between them');
  if (!found.length) return null;
  return isWhole || !isFree ? choice(...found) : sequence(choice(...found), optional(sequence(digit('e', 'e'), optional(choice(literal('+'), literal('-'))), digit(), optional(digit()))));
}

/** Whole numbers, both included. @param {number} low @param {number} high @returns {Node[]} */
function whole(low, high) {
  const found = high >= 0 ? [upwards(Math.max(low, 0), high)] : [];
  return low < 0 ? [...found, sequence(literal('-'), upwards(Math.max(-high, 1), -low))] : found;
}

/** Numbers with a fraction between whole numbers. @param {number} low @param {number} high @returns {Node[]} */
function fractions(low, high) {
  const found = [];
  if (high > Math.max(low, 0)) found.push(sequence(upwards(Math.max(low, 0), high - 1), FRACTION));
  if (low < Math.min(high, 0)) found.push(sequence(literal('-'), upwards(Math.max(-high, 0), -low - 1), FRACTION));
  return found;
}

/** Whole numbers from 0 on, both included. @param {number} low @param {number} high @returns {Node} */
function upwards(low, high) {
  const found = [];
  for (let length = String(low).length; length <= String(high).length; length++) {
    const [first, last] = [Math.max(low, length > 1 ? 10 ** (length - 1) : 0), Math.min(high, 10 ** length - 1)];
    found.push(between(String(first), String(last)));
  }
  return choice(...found);
}

/** Digits between two texts of the same length. @param {string} low @param {string} high @returns {Node} */
function between(low, high) {
  if (!low) return sequence();
  const [a, b] = [low.charCodeAt(0), high.charCodeAt(0)];
  const [restOfLow, restOfHigh] = [low.slice(1), high.slice(1)];
  const [zeros, nines] = ['0'.repeat(restOfLow.length), '9'.repeat(restOfLow.length)];
  if (a === b) return sequence(chars(a, a), between(restOfLow, restOfHigh));
  const [isWholeFirst, isWholeLast] = [restOfLow === zeros, restOfHigh === nines];
  const [first, last] = [isWholeFirst ? a : a + 1, isWholeLast ? b : b - 1];
  const found = [];
  if (!isWholeFirst) found.push(sequence(chars(a, a), between(restOfLow, nines)));
  if (first <= last) found.push(sequence(chars(first, last), repeat(digit(), zeros.length, zeros.length)));
  if (!isWholeLast) found.push(sequence(chars(b, b), between(zeros, restOfHigh)));
  return choice(...found);
}
