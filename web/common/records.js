// Objects as records: a value for each name.

import { InvalidInput } from './errors.js';
import { warnOnce } from './log.js';

/** @template T, R @param {Record<string, T>} record @param {(value: T, name: string) => R} change @returns {Record<string, R>} */
export const mapValues = (record, change) => (
  Object.fromEntries(Object.entries(record).map(([name, value]) => [name, change(value, name)])));

/**
 * Changes each tensor of feeds: a feed is a tensor, an array of tensors, or null.
 * @template {{}} T, R @param {Record<string, T | T[] | null>} feeds @param {(tensor: T) => R} change
 * @returns {Record<string, R | R[] | null>}
 */
export const mapTensors = (feeds, change) => (
  mapValues(feeds, (feed) => (Array.isArray(feed) ? feed.map(change) : feed ? change(feed) : null)));

/**
 * The options of a call: those that are absent or null have their defaults, an unknown one gives a warning. Errors: InvalidInput for what
 * is no object.
 * @template {object} T @param {unknown} given @param {T} defaults of all options @param {string} call its name @returns {T}
 */
export function optionsOf(given, defaults, call) {
  const options = given ?? {};
  if (typeof options !== 'object' || Array.isArray(options)) throw new InvalidInput(`the options of ${call} must be an object`);
  const present = Object.entries(options).filter(([, value]) => value !== undefined && value !== null);
  for (const [name] of present) if (!Object.hasOwn(defaults, name)) warnOnce(`${call} has no option "${name}", it has no effect`);
  return { ...defaults, ...Object.fromEntries(present) };
}
