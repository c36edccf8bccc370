// Feeds as the engine sees them: flat by the Program's names, and described by what a Program depends on.

/** @typedef {import('./protocol.js').WireTensor} WireTensor */
/** @typedef {import('./protocol.js').WireValue} WireValue */

/** @param {WireValue} feed @param {boolean} values @param {boolean} ranks a rank instead of dims, where values do not matter @returns {unknown} */
export function describeFeed(feed, values, ranks) {
  if (feed === null) return null;
  if (Array.isArray(feed)) return feed.map((item) => describeFeed(item, values, ranks));
  const { type, dims } = feed;
  if (!values) return { dtype: type, dims: ranks ? dims.length : dims };
  return { dtype: type, dims, data: Array.from(/** @type {ArrayLike<any>} */ (feed.data), (x) => (typeof x === 'bigint' ? Number(x) : x)) };
}

/** What a Program depends on: equal keys, one Program. @param {Record<string, WireValue>} feeds @param {string[] | null} needs null: one for all */
export function programKey(feeds, needs) {
  if (!needs) return '';
  return JSON.stringify(Object.entries(feeds).map(([name, feed]) => [name, describeFeed(feed, needs.includes(name), true)]));
}

/** Items of sequences by path, as the Program names its inputs. @param {Record<string, WireValue>} feeds @returns {Record<string, WireTensor>} */
export function flatten(feeds) {
  /** @type {Record<string, WireTensor>} */
  const flat = {};
  for (const [name, feed] of Object.entries(feeds)) {
    if (Array.isArray(feed)) Object.assign(flat, flatten(Object.fromEntries(feed.map((item, n) => [`${name}[${n}]`, item]))));
    else if (feed) flat[name] = feed;
  }
  return flat;
}
