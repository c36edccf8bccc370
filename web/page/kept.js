// Outputs that the worker still has: while nobody here has looked at their data, they are fed again without them.

/** @typedef {import('onnxruntime-common').Tensor} Tensor */
/** @typedef {import('../common/protocol.js').NumericData} NumericData */
/** @typedef {{ owner: object, id: number, dims: string, data: NumericData, lent: number }} Kept owner: the session's handler, for another worker counts anew; id: of the output of one run; lent: to so many runs under way */

/** @type {WeakMap<Tensor, Kept>} */
const kept = new WeakMap();

/**
 * Who gets the data may change them: from then on the tensor is like any other.
 * @param {Tensor} tensor that nobody has seen yet @param {object} owner @param {number} id
 */
export function keep(tensor, owner, id) {
  const own = /** @type {{ cpuData?: NumericData }} */ (/** @type {unknown} */ (tensor));
  const { cpuData: data } = own; // where onnxruntime-common has it
  if (data === undefined) return;
  const known = { owner, id, dims: tensor.dims.join(), data, lent: 0 };
  const plain = (/** @type {unknown} */ value) => {
    kept.delete(tensor);
    Object.defineProperty(own, 'cpuData', { value, writable: true, configurable: true, enumerable: true });
    return value;
  };
  kept.set(tensor, known);
  Object.defineProperty(own, 'cpuData', { get: () => plain(known.lent ? data.slice() : data), set: plain, configurable: true, enumerable: true });
}

/** Whether it is still what a run made. @param {Tensor} tensor */
export const isAsMade = (tensor) => kept.get(tensor)?.dims === tensor.dims.join();

/** Those of the feeds of a run that are kept of a session. They stay as they are until they are given back. */
export class Lent {
  /** @param {Iterable<unknown>} feeds @param {object} owner */
  constructor(feeds, owner) {
    /** @type {Map<unknown, Kept>} */
    this.those = new Map();
    for (const feed of feeds) {
      const known = kept.get(/** @type {Tensor} */ (feed));
      if (known?.owner === owner && isAsMade(/** @type {Tensor} */ (feed))) this.those.set(feed, known);
    }
    for (const known of this.those.values()) known.lent++;
  }

  /** @param {number} id */
  known(id) {
    return [...this.those.values()].find((one) => one.id === id);
  }

  giveBack() {
    for (const known of this.those.values()) known.lent--;
  }
}
