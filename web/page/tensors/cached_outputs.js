// Outputs that the worker still has: while nobody here has looked at their data, they are fed again without them. Of one
// that is longer than what was fed the new rows alone come here, and are put behind those for who looks at it.

import { allRows, whole } from './appended_rows.js';

/** @typedef {import('onnxruntime-common').Tensor} Tensor */
/** @typedef {import('../../common/protocol.js').NumericData} NumericData */
/** @typedef {import('../../common/protocol.js').WireTensor} WireTensor */
/** @typedef {import('../../common/protocol.js').WireValue} WireValue */
/** @typedef {import('./appended_rows.js').Rows} Rows */
/** @typedef {{ owner: object, id: number, rows: Rows, lent: number }} Kept owner: the session's handler, for another worker counts anew; id: of the output of one run; lent: to so many runs under way */

/** @type {WeakMap<Tensor, Kept>} */
const kept = new WeakMap();

/**
 * Who gets the data may change them: from then on the tensor is like any other.
 * @param {Tensor} tensor that nobody has seen yet; empty, if its rows are behind those of another
 * @param {object} owner @param {number} id @param {Rows} rows
 */
export function keep(tensor, owner, id, rows) {
  const own = /** @type {{ cpuData?: NumericData }} */ (/** @type {unknown} */ (tensor));
  const { cpuData: data } = own; // where onnxruntime-common has it
  if (data === undefined) return;
  const { dims } = rows;
  if (rows.before) Object.assign(tensor, { dims, size: dims.reduce((size, dim) => size * dim, 1) });
  const known = { owner, id, rows, lent: 0 };
  const plain = (/** @type {unknown} */ value) => {
    kept.delete(tensor);
    Object.defineProperty(own, 'cpuData', { value, writable: true, configurable: true, enumerable: true });
    return value;
  };
  const get = () => plain(known.lent || rows.before || rows.shared ? as(data, whole(rows)) : data);
  kept.set(tensor, known);
  Object.defineProperty(own, 'cpuData', { get, set: plain, configurable: true, enumerable: true });
}

/** The bits as an array of another class, Float16Array for one. @param {NumericData} like @param {NumericData} data */
const as = (like, data) => new (/** @type {any} */ (like.constructor))(data.buffer, data.byteOffset, data.length);

/** Whether it is still what a run made. @param {Tensor} tensor */
export const isAsMade = (tensor) => kept.get(tensor)?.rows.dims.join() === tensor.dims.join();

/** Those of the feeds of a run that are kept of a session. They stay as they are until they are given back. */
export class Lent {
  /** @param {Iterable<unknown>} feeds @param {object} owner */
  constructor(feeds, owner) {
    /** @type {Map<unknown, Kept>} */
    this.those = new Map();
    /** @type {Map<number, Kept>} */
    this.ids = new Map();
    for (const feed of feeds) {
      const known = kept.get(/** @type {Tensor} */ (feed));
      if (known?.owner === owner && isAsMade(/** @type {Tensor} */ (feed))) this.those.set(feed, known);
    }
    for (const known of this.those.values()) {
      known.lent++;
      this.ids.set(known.id, known);
    }
  }

  /** @param {number} id */
  known(id) {
    return this.ids.get(id);
  }

  /** The rows of an output that the worker still has, behind those that it was fed. @param {WireTensor} wire @returns {Rows} */
  rows({ data, dims, after }) {
    const numbers = /** @type {NumericData} */ (data);
    if (!after) return allRows(numbers, dims);
    const before = /** @type {Kept} */ (this.known(after.held)).rows;
    before.shared = true;
    return { data: numbers, dims, axis: after.axis, from: after.rows, before, shared: false };
  }

  giveBack() {
    for (const known of this.those.values()) known.lent--;
  }
}
