// Outputs that a run leaves where they are, for the next to be fed: caches that grow (docs/adr/0091). They stay until the
// next run begins; what it is fed of them stays on.

import { bindDims, feedOf } from './input_dims.js';
import { evaluate } from './dims.js';
import { gather, runsOf } from './room.js';

/** @typedef {import('../common/program.js').Header} Header */
/** @typedef {import('../common/program.js').Input} Input */
/** @typedef {import('../common/program.js').InputRoom} InputRoom */
/** @typedef {import('../common/protocol.js').WireTensor} WireTensor */
/** @typedef {import('../common/protocol.js').WireValue} WireValue */
/** @typedef {import('./plan.js').Planner} Planner */
/** @typedef {import('./plan_state.js').Place} Place */
/** @typedef {import('./plan_state.js').State} State */
/** @typedef {{ buffer: number, places: number, dims: string }} Entry places: that its buffer has along the axis */
/**
 * A run as it begins: places of inputs with room that are not as few as they need, and which inputs lie there already.
 * @typedef {{ root: State, feeds: Record<string, WireValue>, places: Map<number, number>, there: Set<number> }} Begin
 */

/** A feed is named that is not held, or not here: its data have to be sent. */
export class StaleFeeds extends Error {}

let next = 1; // every output has a name of its own

/** @param {WireValue} feed @returns {number} 0: it comes with its data */
export const nameOf = (feed) => (feed && 'held' in feed && feed.held) || 0;

export class HeldOutputs {
  /** @param {Planner} plan */
  constructor(plan) {
    this.plan = plan;
    this.inputs = plan.header.inputs.filter(({ room }) => room);
    /** Of the last run, by name. @type {Map<number, Entry>} */
    this.entries = new Map();
    /** Where they lie. @type {Place | null} */
    this.place = null;
  }

  /** From here on nothing is held but what the feeds name. @param {Record<string, WireValue>} feeds @returns {Begin} */
  begin(feeds) {
    const { entries, place, plan } = this;
    const named = Object.entries(feeds).filter(([, feed]) => nameOf(feed)).map(([name, feed]) => this.found(name, /** @type {WireTensor} */ (feed)));
    this.entries = new Map();
    this.place = null;
    /** @type {Begin} */
    const run = { root: plan.root, feeds: { ...feeds }, places: new Map(), there: new Set() };
    for (const { input, feed, entry } of named) {
      const needed = this.needed(input, feeds);
      if (needed <= entry.places) {
        run.there.add(entry.buffer);
        run.places.set(entry.buffer, entry.places);
      } else { // it grew before, so it does again
        run.feeds[input.name] = { ...feed, data: this.data(input, feed.dims, entry, /** @type {Place} */ (place)) };
        run.places.set(entry.buffer, needed + Math.ceil(needed / 4));
      }
    }
    if (place && run.there.size) run.root = plan.startFrom(place, run.there);
    return run;
  }

  /** What a feed names. @param {string} name @param {WireTensor} feed */
  found(name, feed) {
    const entry = this.entries.get(nameOf(feed));
    const input = this.inputs.find((one) => one.name === name);
    if (!input || entry?.buffer !== input.buffer || entry.dims !== feed.dims.join()) throw new StaleFeeds(name);
    return { input, feed, entry };
  }

  /** Places that this run needs. @param {Input} input @param {Record<string, WireValue>} feeds */
  needed({ room }, feeds) {
    const env = new Map();
    for (const input of this.plan.header.inputs) bindDims(input.name, input.dims, feedOf(feeds, input)?.dims, env);
    return evaluate(/** @type {InputRoom} */ (room).least, env);
  }

  /** @param {Input} input @param {readonly number[]} dims @param {Entry} entry @param {Place} place */
  data({ dtype, room }, dims, { buffer, places }, place) {
    const { axis } = /** @type {InputRoom} */ (room);
    const span = place.spans.get(buffer);
    if (!span) throw new Error(`buffer ${buffer} has no memory`);
    return gather(this.plan.memory.view(span, span.size), runsOf({ buffer, dtype, dims: [...dims], room: { axis, places } }, new Map()));
  }

  /**
   * What a run has made stays: its tensors go with their names, but not those of the caller.
   * @param {State} state @param {Record<string, WireValue>} results @param {Record<string, unknown>} fetches
   */
  leave({ place, env }, results, fetches) {
    this.place = place;
    for (const { name, value } of this.plan.header.outputs) {
      const made = /** @type {WireTensor | undefined} */ (results[name]);
      if (!made || fetches[name] || !value || !('room' in value) || !value.room) continue;
      made.held = next++;
      this.entries.set(made.held, { buffer: value.buffer, places: evaluate(value.room.places, env), dims: made.dims.join() });
    }
  }
}
