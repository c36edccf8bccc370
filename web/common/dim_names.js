// Dim names are hints: sessions run feeds in which dims of the same name differ, as onnxruntime does.

/** @import { ValueInfo } from './protocol.js' */

/**
 * Returns the dim names whose sizes differ in these feeds, with an input for each size.
 * @param {ValueInfo[]} inputs @param {Record<string, { dims: readonly number[] } | unknown>} feeds
 * @returns {Map<string, string[]>}
 */
export function differingDims(inputs, feeds) {
  /** An input, by dim name and then by size. @type {Map<string, Map<number, string>>} */
  const sizes = new Map();
  for (const { name, shape, sequence } of inputs) {
    const feed = Object.hasOwn(feeds, name) ? /** @type {{ dims: readonly number[] } | null | undefined} */ (feeds[name]) : null;
    if (!shape || sequence || !feed) continue;
    shape.forEach((dim, axis) => {
      if (typeof dim !== 'string') return;
      const found = sizes.get(dim) ?? new Map();
      sizes.set(dim, found.set(feed.dims[axis], found.get(feed.dims[axis]) ?? name));
    });
  }
  const differing = [...sizes].filter(([, found]) => found.size > 1);
  return new Map(differing.map(([dim, found]) => [dim, [...found.values()]]));
}

/**
 * Returns the inputs, in which dims with these names are now unknown.
 * @param {ValueInfo[]} inputs @param {Map<string, unknown>} dims @returns {ValueInfo[]}
 */
export function withUnknownDims(inputs, dims) {
  const unnamed = (/** @type {number | string | null} */ dim) => (typeof dim === 'string' && dims.has(dim) ? null : dim);
  return inputs.map((info) => ({ ...info, shape: info.shape && info.shape.map(unnamed) }));
}
