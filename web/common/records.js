// Objects as records: a value for each name.

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
