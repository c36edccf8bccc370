// Feeds as the compiler sees them: described by what a Program depends on.

/** @typedef {import('./protocol.js').WireValue} WireValue */
/** @typedef {import('./protocol.js').Needs} Needs */

/** @param {WireValue} feed @param {boolean} values @param {boolean} ranks a rank instead of dims, where values do not matter @returns {unknown} */
export function describeFeed(feed, values, ranks) {
  if (feed === null) return null;
  if (Array.isArray(feed)) return feed.map((item) => describeFeed(item, values, ranks));
  const { type, dims } = feed;
  if (!values) return { dtype: type, dims: ranks ? dims.length : dims };
  return { dtype: type, dims, data: Array.from(/** @type {ArrayLike<any>} */ (feed.data), (x) => (typeof x === 'bigint' ? Number(x) : x)) };
}

/** What a Program depends on: equal keys, one Program. @param {Record<string, WireValue>} feeds @param {Needs | null} needs null: one for all */
export function programKey(feeds, needs) {
  if (!needs || needs.defaults?.every((name) => !Object.hasOwn(feeds, name))) return '';
  const { values, dims } = needs;
  return JSON.stringify(Object.entries(feeds).map(([name, feed]) => [name, describeFeed(feed, values.includes(name), !dims.includes(name))]));
}
