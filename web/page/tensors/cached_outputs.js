// Outputs that the worker keeps for the next run. Until the page reads their data, it feeds them by id, without data. If an
// output begins with rows of a feed, the worker sends only the new rows; reading the data joins them.

import { Tensor } from 'onnxruntime-common';
import { own } from '../../common/elements.js';
import { allRows, joinRows } from './appended_rows.js';

/** @import { NumericData, WireTensor } from '../../common/protocol.js' */
/** @import { Rows } from './appended_rows.js' */
/**
 * owner: its session; id: in the worker; leases: number of runs in progress that feed it.
 * @typedef {{ owner: object, id: number, rows: Rows, leases: number }} Entry
 */

const Base = /** @type {any} */ (Tensor);

/** A tensor whose data are joined when they are first read. Readers may change them: from then on the page feeds the data. */
export class CachedOutput extends Base {
  /** @param {string} type @param {object} owner @param {number} id @param {Rows} rows */
  constructor(type, owner, id, rows) {
    const { data, dims, before } = rows;
    super(type, own(before ? data.subarray(0, 0) : data), before ? [0] : dims);
    if (before) Object.assign(this, { dims, size: dims.reduce((size, dim) => size * dim, 1) });
    // No private members: a proxy, as Vue makes of each object in its state, has none.
    /** @type {Entry | null} null: the data were read */
    this._entry = { owner, id, rows, leases: 0 };
    /** @type {NumericData | null} joined */
    this._data = null;
    Object.defineProperties(this, { _entry: { enumerable: false }, _data: { enumerable: false } });
  }

  get data() {
    if (this._entry) {
      const { rows, leases } = this._entry;
      this._entry = null;
      if (leases || rows.before || rows.shared) {
        const { buffer, byteOffset, length } = joinRows(rows);
        this._data = new super.data.constructor(buffer, byteOffset, length); // joined data may have another class, such as Float16Array
      }
    }
    return this._data ?? super.data;
  }

  /**
   * The first entries along an axis; the worker keeps them, too. null if the data were read.
   * @param {number} count @param {number} axis @returns {CachedOutput | null}
   */
  first(count, axis) {
    if (!this._entry) return null;
    const { owner, id, rows } = this._entry;
    rows.shared = true;
    const dims = this.dims.map((/** @type {number} */ dim, /** @type {number} */ n) => (n === axis ? count : dim));
    const none = rows.data.subarray(0, 0);
    return new CachedOutput(this.type, owner, id, { data: none, dims, axis, from: count, before: rows, shared: false });
  }

  dispose() {
    this._entry = this._data = null;
    super.dispose();
  }

  /**
   * Returns the entry of an output, unless its data were read or its dims changed.
   * @param {Tensor} tensor @returns {Entry | null}
   */
  static unread(tensor) {
    const entry = tensor instanceof CachedOutput ? tensor._entry : null;
    return entry && entry.rows.dims.join() === tensor.dims.join() ? entry : null;
  }
}

/** The cached outputs of one session among the feeds of a run. They stay unchanged until the leases are released. */
export class Leases {
  /** @param {Iterable<unknown>} feeds @param {object} owner */
  constructor(feeds, owner) {
    /** @type {Map<unknown, Entry>} */
    this.byTensor = new Map();
    /** @type {Map<number, Entry>} */
    this.byId = new Map();
    for (const feed of feeds) {
      const entry = feed instanceof Tensor ? CachedOutput.unread(feed) : null;
      if (entry?.owner !== owner || this.byTensor.has(feed)) continue;
      entry.leases++;
      this.byTensor.set(feed, entry);
      this.byId.set(entry.id, entry);
    }
  }

  /** The rows of an output that the worker keeps. @param {WireTensor} wire @returns {Rows} */
  rowsOf({ data, dims, after }) {
    const numbers = /** @type {NumericData} */ (data);
    if (!after) return allRows(numbers, dims);
    const before = /** @type {Entry} */ (this.byId.get(after.held)).rows;
    before.shared = true;
    return { data: numbers, dims, axis: after.axis, from: after.rows, before, shared: false };
  }

  release() {
    for (const entry of this.byTensor.values()) entry.leases--;
  }
}
