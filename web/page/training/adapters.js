// The adapters of a session in a page, and what its runs feed for those that they use.
// Twin of pyruntime/training/adapters/session_adapters.py.

import { InvalidInput } from '../../common/errors.js';
import { joinedAdapters } from '../../run/joined_adapters.js';
import { checkTogether, rankOf } from '../../runtime/adapter_places.js';

/** @import { Fed } from '../../run/joined_adapters.js' */
/** @import { AdaptersInfo } from '../../common/protocol.js' */
/** @import { Places } from '../../runtime/adapter_places.js' */
/** @import { Adapter } from './adapter_file.js' */
/** Names, or weights by name. @typedef {string | readonly string[] | Readonly<Record<string, number>>} Active */

export const RANK = 'adapters:rank';
const KEPT = 8; // combinations of adapters whose matrices are kept

export class Adapters {
  /**
   * @param {Record<string, Adapter>} files @param {AdaptersInfo} info @param {Record<string, Places>} places
   * @param {Record<string, string | null>} types of the model's inputs
   */
  constructor(files, info, places, types) {
    this.files = files;
    this.info = info;
    this.places = places;
    this.types = types;
    /** @type {Map<string, Record<string, Fed>>} */
    this.kept = new Map();
  }

  /** The largest rank of a single adapter. */
  get rank() {
    return Math.max(0, ...Object.values(this.places).map(({ entries }) => rankOf(entries)));
  }

  /** @param {Active} [active] @returns {Record<string, Fed>} by name of the input */
  feeds(active = []) {
    const weights = this.weights(active);
    const key = JSON.stringify(weights);
    const found = this.kept.get(key) ?? this.joined(weights);
    this.kept.delete(key);
    this.kept.set(key, found); // the last that was used is the last
    if (this.kept.size > KEPT) this.kept.delete(/** @type {string} */ (this.kept.keys().next().value));
    return found;
  }

  /** @param {Active} active @returns {[string, number][]} */
  weights(active) {
    const named = typeof active === 'string' ? [active] : active;
    /** @type {[string, number][]} */
    const weights = Array.isArray(named) ? named.map((name) => [name, 1]) : Object.entries(/** @type {Record<string, number>} */ (named ?? {}));
    for (const [name, weight] of weights) {
      const known = Object.keys(this.files).join(', ') || 'none';
      if (!Object.hasOwn(this.files, name)) throw new InvalidInput(`the session has no adapter "${name}"`, { hint: `its option adapters names ${known}` });
      if (typeof weight !== 'number' || !Number.isFinite(weight)) throw new InvalidInput(`the weight of adapter "${name}" cannot be ${weight}`, { hint: 'give a number' });
    }
    return weights;
  }

  /** @param {[string, number][]} weights @returns {Record<string, Fed>} */
  joined(weights) {
    const defaults = Object.entries(this.info.defaults).map(([name, { dtype, dims, data }]) => [name, { data: fromBase64(data), type: dtype, dims }]);
    const active = weights.map(([name, weight]) => ({ tensors: this.files[name].tensors, places: this.places[name], weight }));
    checkTogether(active.map(({ places }) => places));
    return { ...Object.fromEntries(defaults), ...joinedAdapters(this.info, this.types, active) };
  }
}

/** @param {string} text */
const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
