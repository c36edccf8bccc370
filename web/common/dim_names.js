// Names of dims are hints: onnxruntime runs feeds where dims of one name differ, and so do sessions.

/** @typedef {import('./protocol.js').ValueInfo} ValueInfo */

/**
 * The names that dims of several inputs bear whose sizes differ in these feeds, and those inputs.
 * @param {ValueInfo[]} inputs @param {Record<string, { dims: readonly number[] } | unknown>} feeds
 * @returns {Map<string, string[]>}
 */
export function differingDims(inputs, feeds) {
  /** @type {Map<string, Map<number, string>>} by name: by size, an input */
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

/** The inputs with these dims as unknown ones. @param {ValueInfo[]} inputs @param {Map<string, unknown>} dims @returns {ValueInfo[]} */
export function withDimsApart(inputs, dims) {
  return inputs.map((info) => ({ ...info, shape: info.shape && info.shape.map((dim) => (typeof dim === 'string' && dims.has(dim) ? null : dim)) }));
}
