// Describes feeds for the compiler, and makes keys of the Programs that can run them.

/** @import { Needs, WireValue } from './protocol.js' */

/**
 * @param {WireValue} feed @param {boolean} values whether a Program depends on its values
 * @param {boolean} ranks whether to give its rank instead of its dims @returns {unknown}
 */
export function describeFeed(feed, values, ranks) {
  if (feed === null) return null;
  if (Array.isArray(feed)) return feed.map((item) => describeFeed(item, values, ranks));
  const { type, dims } = feed;
  if (!values) return { dtype: type, dims: ranks ? dims.length : dims };
  return { dtype: type, dims, data: Array.from(/** @type {ArrayLike<unknown>} */ (feed.data), (x) => (typeof x === 'bigint' ? Number(x) : x)) };
}

/**
 * Feeds with equal keys run the same Program.
 * @param {Record<string, WireValue>} feeds @param {Needs | null} needs null: one Program for all feeds
 */
export function programKey(feeds, needs) {
  if (!needs || needs.defaults?.every((name) => !Object.hasOwn(feeds, name))) return '';
  const { values, dims } = needs;
  const entries = Object.entries(feeds);
  return JSON.stringify(entries.map(([name, feed]) => [name, describeFeed(feed, values.includes(name), !dims.includes(name))]));
}
