// Kinds of options, and the check of options by a table. A wrong value is an error; an unknown option, or a value that has
// no effect, gives a warning.

import { InvalidInput } from '../../common/errors.js';
import { warnOnce } from '../../common/log.js';

/** @import { LogOptions } from '../../common/log.js' */
/**
 * wants: the values that `takes` accepts, in words; refused: why the engine cannot honour a value; noEffect: why the
 * values for which `warns` holds change nothing.
 * @typedef {object} Option
 * @property {string} wants
 * @property {(value: unknown) => boolean} takes
 * @property {(value: unknown) => string | false} [refused]
 * @property {string} [noEffect]
 * @property {(value: unknown) => boolean} [warns]
 */
/** Options by name. @typedef {Readonly<Record<string, Option>>} Table */

/** @type {Option} */
export const anything = { wants: 'anything', takes: () => true };
/** @type {Option} */
export const flag = { wants: 'true or false', takes: (value) => typeof value === 'boolean' };
/** @type {Option} */
export const text = { wants: 'a string', takes: (value) => typeof value === 'string' };
/** @type {Option} */
export const callable = { wants: 'a function', takes: (value) => typeof value === 'function' };
/** @type {Option} */
export const list = { wants: 'an array', takes: Array.isArray };
/** @type {Option} */
export const record = { wants: 'an object', takes: isRecord };

/** @param {unknown} value @returns {value is Record<string, unknown>} */
export function isRecord(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @param {string} wants @returns {Option} */
export const positive = (wants) => ({ wants, takes: (value) => typeof value === 'number' && value > 0 });

/** @param {...string} values @returns {Option} */
export const oneOf = (...values) => ({ wants: values.map((value) => `'${value}'`).join(' or '), takes: (value) => /** @type {unknown[]} */ (values).includes(value) });

/** @param {number} [most] @returns {Option} */
export const count = (most = Infinity) => ({
  wants: `an integer from 0 ${most < Infinity ? `to ${most}` : 'on'}`,
  takes: (value) => Number.isInteger(value) && Number(value) >= 0 && Number(value) <= most,
});

/** @type {Option} */
export const sizes = {
  wants: 'integers from 0 on, by names of dims',
  takes: (value) => isRecord(value) && Object.values(value).every(count().takes),
};

const location = oneOf('cpu', 'gpu-buffer');
/** @type {Option} */
export const locations = {
  wants: `${location.wants}, for all outputs or by name`,
  takes: (value) => location.takes(value) || isRecord(value) && Object.values(value).every(location.takes),
};

/** An option without effect. @param {Option} kind @param {string} why @param {Option['warns']} [warns] @returns {Option} */
export const noEffect = (kind, why, warns = () => true) => ({ ...kind, noEffect: why, warns });

/** @param {unknown} value */
export const isOn = (value) => Boolean(value) && value !== '0';

/** A text that cannot be on. @param {string} why @returns {Option} */
export const refusedIfOn = (why) => ({ ...text, refused: (value) => isOn(value) && why });

/**
 * Options that are undefined or null count as absent.
 * @param {Table} table @param {object} options @param {string} what the options are, in messages @param {LogOptions} [log]
 */
export function check(table, options, what, log) {
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null) continue;
    if (!Object.hasOwn(table, name)) {
      warnOnce(`there is no ${what} "${name}", it has no effect`, log);
      continue;
    }
    const option = table[name];
    if (!option.takes(value)) throw new InvalidInput(`${name} cannot be ${shown(value)}`, { hint: option.wants });
    const refused = option.refused?.(value);
    if (refused) throw new InvalidInput(`${name}: ${refused}`);
    if (option.warns?.(value)) warnOnce(`the ${what} "${name}" has no effect: ${option.noEffect}`, log);
  }
}

/** A value as messages show it. @param {unknown} value */
export function shown(value) {
  if (typeof value === 'string') return `'${value}'`;
  if (typeof value === 'function') return 'a function';
  if (typeof value !== 'object' || value === null) return String(value);
  return Array.isArray(value) ? `an array of ${value.length}` : `an object ${value.constructor?.name ?? ''}`.trim();
}

/**
 * The entries of `extra`, nested or not, as texts by dotted names.
 * @param {object} extra @returns {Record<string, string>}
 */
export function flatten(extra, prefix = '', above = /** @type {object[]} */ ([])) {
  if (above.includes(extra)) throw new InvalidInput(`extra.${prefix.slice(0, -1)} contains itself`);
  /** @type {Record<string, string>} */
  const found = {};
  for (const [key, value] of Object.entries(extra)) {
    const name = prefix + key;
    if (isRecord(value)) Object.assign(found, flatten(value, `${name}.`, [...above, extra]));
    else if (typeof value === 'string' || typeof value === 'number') found[name] = String(value);
    else if (typeof value === 'boolean') found[name] = value ? '1' : '0';
    else throw new InvalidInput(`extra.${name} cannot be ${shown(value)}`, { hint: 'a string, a number, true or false, or an object of these' });
  }
  return found;
}
