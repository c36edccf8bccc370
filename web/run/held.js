// Outputs that a run leaves where they are, for the next to be fed: caches that grow
// (docs/design/kv-caches.md#growing-in-place). They stay until the
// next run begins; what it is fed of them stays on.

import { bindDims, feedOf } from './input_dims.js';
import { evaluate } from './dims.js';
import { gather, runsOf } from './room.js';
import { elementSize, load, viewOf } from '../common/elements.js';

/** @typedef {import('../common/program.js').Header} Header */
/** @typedef {import('../common/program.js').Input} Input */
/** @typedef {import('../common/program.js').InputRoom} InputRoom */
/** @typedef {import('../common/protocol.js').WireTensor} WireTensor */
/** @typedef {import('../common/protocol.js').WireValue} WireValue */
/** @typedef {import('./dims.js').Env} Env */
/** @typedef {import('./plan.js').Planner} Planner */
/** @typedef {import('./plan_state.js').Place} Place */
/** @typedef {import('./plan_state.js').State} State */
/** @typedef {import('./room.js').Runs} Runs */
/** @typedef {import('../common/protocol.js').After} After */
/** @typedef {import('../common/program.js').TensorValue} TensorValue */
/** @typedef {{ buffer: number, places: number, dims: string }} Entry places: that its buffer has along the axis */
/**
 * A run as it begins: places of inputs with room that are not as few as they need, and which inputs lie there already.
 * @typedef {{ root: State, feeds: Record<string, WireValue>, places: Map<number, number>, there: Set<number> }} Begin
 */

/** A feed is named that is not held, or not here: its data have to be sent. */
export class StaleFeeds extends Error {}

const LEAST = 1 << 16; // bytes that a buffer becomes longer by: with each everything is laid out anew

/** @param {Input} input with room @param {readonly number[]} dims */
function bytesOfRow({ dtype, room }, dims) {
  const { axis } = /** @type {InputRoom} */ (room);
  return dims.reduce((size, dim, n) => (n === axis ? size : size * dim), elementSize(dtype)) || LEAST;
}

/**
 * Whether the last row was written in all runs of bytes. New rows of one item alone are the last, unless what tells their
 * places is not as its operator defines it: then the last row is none of an item's, 0.
 * @param {Uint8Array} bytes @param {Runs} runs @param {number} row bytes
 */
function endsInNew(bytes, { count, length, stride }, row) {
  for (let n = 0; n < count; n++) if (bytes.subarray(n * stride + length - row, n * stride + length).every((byte) => byte === 0)) return false;
  return true;
}

const MOST = 1 << 18; // bytes: a buffer goes to the page whole, whatever of it is used

/** Memory for the new rows of a run: one buffer, where they are no more than in the last. */
class NewRows {
  constructor() {
    this.taken = 0;
    this.all = new Uint8Array(0);
  }

  /** @param {number} size bytes */
  take(size) {
    const at = this.taken;
    this.taken += Math.ceil(size / 8) * 8; // of any type
    return this.taken <= this.all.length ? this.all.subarray(at, at + size) : new Uint8Array(size);
  }

  /** The run's are its own from here on. */
  end() {
    this.all = new Uint8Array(this.taken <= MOST ? this.taken : 0);
    this.taken = 0;
  }
}

let next = 1; // every output has a name of its own

/** @param {WireValue} feed @returns {number} 0: it comes with its data */
export const nameOf = (feed) => (feed && 'held' in feed && feed.held) || 0;

export class HeldOutputs {
  /** @param {Planner} plan */
  constructor(plan) {
    this.plan = plan;
    /** Those with room. @type {Map<string, Input>} */
    this.inputs = new Map(plan.header.inputs.filter(({ room }) => room).map((input) => [input.name, input]));
    /** Of the last run, by name. @type {Map<number, Entry>} */
    this.entries = new Map();
    /** Where they lie. @type {Place | null} */
    this.place = null;
    /** What the run in progress was fed by name, by buffer. @type {Map<number, { input: Input, feed: WireTensor }>} */
    this.fed = new Map();
    this.rows = new NewRows();
  }

  /** From here on nothing is held but what the feeds name. @param {Record<string, WireValue>} feeds @returns {Begin} */
  begin(feeds) {
    const { entries, place, plan } = this;
    const named = Object.entries(feeds).filter(([, feed]) => nameOf(feed)).map(([name, feed]) => this.found(name, /** @type {WireTensor} */ (feed)));
    this.entries = new Map();
    this.place = null;
    this.fed = new Map(named.map(({ input, feed }) => [input.buffer, { input, feed }]));
    /** @type {Begin} */
    const run = { root: plan.root, feeds: { ...feeds }, places: new Map(), there: new Set() };
    const env = named.length ? this.dims(feeds) : new Map();
    for (const { input, feed, entry } of named) {
      const needed = evaluate(/** @type {InputRoom} */ (input.room).least, env);
      if (needed <= entry.places) {
        run.there.add(entry.buffer);
        run.places.set(entry.buffer, entry.places);
      } else { // it grew before, so it does again
        run.feeds[input.name] = { ...feed, data: this.data(input, feed.dims, entry, /** @type {Place} */ (place)) };
        run.places.set(entry.buffer, needed + Math.max(Math.ceil(needed / 4), Math.ceil(LEAST / bytesOfRow(input, feed.dims))));
      }
    }
    if (place && run.there.size) run.root = plan.startFrom(place, run.there);
    return run;
  }

  /** What a feed names. @param {string} name @param {WireTensor} feed */
  found(name, feed) {
    const entry = this.entries.get(nameOf(feed));
    const input = this.inputs.get(name);
    if (!input || entry?.buffer !== input.buffer || entry.dims !== feed.dims.join()) throw new StaleFeeds(name);
    return { input, feed, entry };
  }

  /** Of the run, by which the places are told that inputs need. @param {Record<string, WireValue>} feeds @returns {Env} */
  dims(feeds) {
    const env = new Map();
    for (const input of this.plan.header.inputs) bindDims(input.name, input.dims, feedOf(feeds, input)?.dims, env);
    return env;
  }

  /** @param {Input} input @param {readonly number[]} dims @param {Entry} entry @param {Place} place */
  data({ dtype, room }, dims, { buffer, places }, place) {
    const { axis } = /** @type {InputRoom} */ (room);
    const span = place.spans.get(buffer);
    if (!span) throw new Error(`buffer ${buffer} has no memory`);
    return gather(this.plan.memory.view(span, span.size), runsOf({ buffer, dtype, dims: [...dims], room: { axis, places } }, new Map()));
  }

  /**
   * An output for the page, which has what it fed: rows behind those are enough.
   * @param {TensorValue} value with room @param {number[]} dims @param {Uint8Array} bytes of the buffer @param {Env} env @returns {WireTensor}
   */
  output(value, dims, bytes, env) {
    const runs = runsOf(value, env);
    const after = this.after(value, dims, bytes, runs, env);
    if (!after) return load(gather(bytes, runs), value.dtype, dims, null, true);
    const known = after.rows * (runs.length / dims[after.axis]);
    const rows = gather(bytes, runs, known, this.rows.take(runs.count * (runs.length - known)));
    return { type: value.dtype, dims, data: viewOf(rows, value.dtype), after }; // rooms have no types of four bits
  }

  /** The rows of a feed that an output begins with, where that is sure. @param {TensorValue} value @param {number[]} dims @param {Uint8Array} bytes @param {Runs} runs @param {Env} env @returns {After | null} */
  after({ buffer }, dims, bytes, runs, env) {
    const fed = this.fed.get(buffer);
    if (!fed) return null;
    const { axis, mixed } = /** @type {InputRoom} */ (fed.input.room);
    const rows = fed.feed.dims[axis];
    const total = dims[axis];
    if (mixed === undefined) return { held: nameOf(fed.feed), axis, rows };
    const first = Math.min(rows, total - evaluate(mixed, env));
    const sure = dims[0] === 1 && total > rows && first > 0 && endsInNew(bytes, runs, runs.length / total);
    return sure ? { held: nameOf(fed.feed), axis, rows: first } : null;
  }

  /**
   * What a run has made stays: its tensors go with their names, but not those of the caller.
   * @param {State} state @param {Record<string, WireValue>} results @param {Record<string, unknown>} fetches
   */
  leave({ place, env }, results, fetches) {
    this.place = place;
    this.rows.end();
    for (const { name, value } of this.plan.header.outputs) {
      const made = /** @type {WireTensor | undefined} */ (results[name]);
      if (!made || fetches[name] || !value || !('room' in value) || !value.room) continue;
      made.held = next++;
      this.entries.set(made.held, { buffer: value.buffer, places: evaluate(value.room.places, env), dims: made.dims.join() });
    }
  }
}
