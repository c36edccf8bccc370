// Outputs that stay in linear memory for the next run: KV caches (docs/design/kv-caches.md#growing-in-place). When the next
// run starts, those that it is not fed are dropped. Twin of pyruntime/native/execution/resident_outputs.py.

import { dimsOf } from './input_dims.js';
import { evaluate } from '../common/dims.js';
import { endsInNew, gather, rangesOf } from './room.js';
import { load, viewOf } from '../common/elements.js';
import { firstNewRow, nextCapacity } from '../runtime/growth.js';

/** @import { Env } from '../common/dims.js' */
/** @import { Header, Input, InputRoom, TensorValue } from '../common/program.js' */
/** @import { After, WireTensor, WireValue } from '../common/protocol.js' */
/** @import { ByteRanges } from '../runtime/growth.js' */
/** @import { Planner } from '../runtime/planner.js' */
/** @import { Place, State } from '../runtime/states.js' */
/** @typedef {{ buffer: number, places: number, dims: readonly number[] }} Entry places: positions for which its buffer has room along the axis that grows */
/**
 * The start of a run. places: capacities of inputs that exceed the least, by buffer; there: buffers that already hold their
 * inputs.
 * @typedef {{ root: State, feeds: Record<string, WireValue>, places: Map<number, number>, there: Set<number> }} Begin
 */

/** The page named a cached tensor that the worker no longer has: the page must send its data. */
export class StaleFeeds extends Error {}

/**
 * Whether these are the dims of a tensor, or of its first rows along the axis.
 * @param {readonly number[]} dims @param {readonly number[]} whole @param {number} axis
 */
const isStartOf = (dims, whole, axis) => dims.length === whole.length && dims.every((dim, n) => (n === axis ? dim <= whole[n] : dim === whole[n]));

const MOST = 1 << 18; // bytes: a buffer is sent to the page whole, also if little of it is used

/** Memory for the new rows of a run: one buffer, if they need no more than in the last run. */
class NewRows {
  constructor() {
    this.taken = 0;
    this.all = new Uint8Array(0);
  }

  /** @param {number} size bytes */
  take(size) {
    const at = this.taken;
    this.taken += Math.ceil(size / 8) * 8; // aligned for any element type
    return this.taken <= this.all.length ? this.all.subarray(at, at + size) : new Uint8Array(size);
  }

  /** Ends a run: its outputs own its buffer, so the next run gets a new one. */
  end() {
    this.all = new Uint8Array(this.taken <= MOST ? this.taken : 0);
    this.taken = 0;
  }
}

let next = 1; // the number of the next resident output

/** @param {WireValue} feed @returns {number} the number of a resident output; 0: the feed has data */
export const residentId = (feed) => (feed && 'held' in feed && feed.held) || 0;

export class ResidentOutputs {
  /** @param {Planner} plan @param {import('./memory.js').Memory} memory */
  constructor(plan, memory) {
    this.plan = plan;
    this.memory = memory;
    /** Inputs with a capacity. @type {Map<string, Input>} */
    this.inputs = new Map(plan.header.inputs.filter(({ room }) => room).map((input) => [input.name, input]));
    /** Resident outputs of the last run, by number. @type {Map<number, Entry>} */
    this.entries = new Map();
    /** The place in which these outputs have memory. @type {Place | null} */
    this.place = null;
    /** Resident feeds of the current run, by buffer. @type {Map<number, { input: Input, feed: WireTensor }>} */
    this.fed = new Map();
    this.rows = new NewRows();
  }

  /**
   * Starts a run: only the outputs that it is fed stay resident.
   * @param {Record<string, WireValue>} feeds @param {Input[]} inputs that the run reads @returns {Begin}
   */
  begin(feeds, inputs) {
    const { entries, place, plan } = this;
    const read = new Set(inputs.map(({ name }) => name));
    const resident = Object.entries(feeds).filter(([name, feed]) => residentId(feed) && read.has(name));
    const named = resident.map(([name, feed]) => this.found(name, /** @type {WireTensor} */ (feed)));
    this.entries = new Map();
    this.place = null;
    this.fed = new Map(named.map(({ input, feed }) => [input.buffer, { input, feed }]));
    /** @type {Begin} */
    const run = { root: plan.root, feeds: { ...feeds }, places: new Map(), there: new Set() };
    const env = named.length ? dimsOf(plan, feeds, inputs) : new Map();
    for (const { input, feed, entry } of named) {
      const needed = evaluate(/** @type {InputRoom} */ (input.room).least, env);
      if (needed <= entry.places) {
        run.there.add(entry.buffer);
        run.places.set(entry.buffer, entry.places);
      } else {
        const ranges = this.ranges(input, feed.dims, entry);
        run.feeds[input.name] = { ...feed, data: gather(this.bytes(entry, /** @type {Place} */ (place)), ranges) };
        run.places.set(entry.buffer, this.plan.leastCapacity(entry.buffer, nextCapacity(needed, ranges)));
      }
    }
    if (place && run.there.size) run.root = plan.startFrom(place, [...run.there]);
    return run;
  }

  /** The resident output of a feed. Throws StaleFeeds if it is gone. @param {string} name @param {WireTensor} feed */
  found(name, feed) {
    const entry = this.entries.get(residentId(feed));
    const input = this.inputs.get(name);
    if (!input || entry?.buffer !== input.buffer || !isStartOf(feed.dims, entry.dims, /** @type {InputRoom} */ (input.room).axis)) throw new StaleFeeds(name);
    return { input, feed, entry };
  }

  /** Whether an output lies in the buffer of an input, so that a run can be fed it in place. @param {number} buffer */
  isInput(buffer) {
    return [...this.inputs.values()].some((input) => input.buffer === buffer);
  }

  /** @param {Input} input @param {readonly number[]} dims @param {Entry} entry */
  ranges({ dtype, room }, dims, { buffer, places }) {
    const { axis } = /** @type {InputRoom} */ (room);
    return rangesOf({ buffer, dtype, dims: [...dims], room: { axis, places } }, new Map());
  }

  /** @param {Entry} entry @param {Place} place */
  bytes({ buffer }, place) {
    const span = place.spans.get(buffer);
    if (!span) throw new Error(`buffer ${buffer} has no memory`);
    return this.memory.view(span, span.size);
  }

  /**
   * An output for the page: only its new rows, if it starts with rows that the page fed.
   * @param {TensorValue} value with a capacity @param {number[]} dims @param {Uint8Array} bytes of the buffer @param {Env} env @returns {WireTensor}
   */
  output(value, dims, bytes, env) {
    const ranges = rangesOf(value, env);
    const after = this.after(value, dims, bytes, ranges, env);
    if (!after) return load(gather(bytes, ranges), value.dtype, dims, null, true);
    const known = after.rows * ranges.row;
    const rows = gather(bytes, ranges, known, this.rows.take(ranges.count * (ranges.length - known)));
    return { type: value.dtype, dims, data: viewOf(rows, value.dtype), after }; // tensors with a capacity have no types of four bits
  }

  /**
   * The rows of a feed with which an output certainly starts; null if unknown.
   * @param {TensorValue} value @param {number[]} dims @param {Uint8Array} bytes @param {ByteRanges} ranges @param {Env} env
   * @returns {After | null}
   */
  after({ buffer }, dims, bytes, ranges, env) {
    const fed = this.fed.get(buffer);
    if (!fed) return null;
    const { axis, mixed } = /** @type {InputRoom} */ (fed.input.room);
    const rows = fed.feed.dims[axis];
    if (mixed === undefined) return { held: residentId(fed.feed), axis, rows };
    const first = Math.min(rows, firstNewRow(dims[0], rows, dims[axis], evaluate(mixed, env)));
    return first > 0 && endsInNew(bytes, ranges) ? { held: residentId(fed.feed), axis, rows: first } : null;
  }

  /**
   * Ends a run: its outputs stay resident, except those for which the caller provided tensors.
   * @param {State} state @param {Record<string, WireValue>} results @param {Record<string, unknown>} fetches
   */
  leave({ place, env }, results, fetches) {
    this.place = place;
    this.rows.end();
    for (const { name, value } of this.plan.header.outputs) {
      const made = /** @type {WireTensor | undefined} */ (results[name]);
      if (!made || fetches[name] || !value || !('room' in value) || !value.room || !this.isInput(value.buffer)) continue;
      made.held = next++;
      this.entries.set(made.held, { buffer: value.buffer, places: evaluate(value.room.places, env), dims: made.dims });
    }
  }
}
