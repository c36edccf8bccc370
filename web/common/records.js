// Objects as records: a value for each name.

import { InvalidInput } from './errors.js';

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
 * The options of a call: those that are absent or null have their defaults.
 * @template {object} T @param {unknown} given @param {T} defaults of all options @param {string} call its name
 * @param {new (message: string) => Error} [Refused] the class of the error for what is no object, or has another option @returns {T}
 */
export function optionsOf(given, defaults, call, Refused = InvalidInput) {
  const options = given ?? {};
  if (typeof options !== 'object' || Array.isArray(options)) throw new Refused(`the options of ${call} must be an object`);
  const present = Object.entries(options).filter(([, value]) => value !== undefined && value !== null);
  for (const [name] of present) if (!Object.hasOwn(defaults, name)) throw new Refused(`${call} has no option "${name}", only ${Object.keys(defaults)}`);
  return { ...defaults, ...Object.fromEntries(present) };
}
