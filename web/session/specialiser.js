// Compiles a model: once for all feeds, or for each set of values that the compiler needs to know.
// Twin of pyruntime/session/specialisation.py.

import { describeFeed, programKey } from '../common/flat_feeds.js';
import { during } from '../common/log.js';
import { mapValues } from '../common/records.js';
import { residentId, StaleFeeds } from '../run/resident_outputs.js';

/** @import { ProgramData } from '../common/program.js' */
/** @import { Needs, WireValue } from '../common/protocol.js' */
/** @import { Stop } from '../common/stop.js' */
/** @typedef {Record<string, WireValue>} Feeds */

export class Specialiser {
  /** @param {import('./compiler.js').Compiler} compiler @param {import('../common/log.js').LogOptions} [logOptions] */
  constructor(compiler, logOptions) {
    this.compiler = compiler;
    this.logOptions = logOptions;
    /** What a Program depends on; null: one Program serves all feeds. @type {Needs | null} */
    this.needs = null;
  }

  /** @returns {Promise<ProgramData | null>} the Program for all feeds; null if there must be one for each set of values */
  async compileMain() {
    const program = await during(this.logOptions, () => this.compiler.main());
    const needs = JSON.parse(this.compiler.needs);
    this.needs = needs.defaults?.length === 0 ? null : needs;
    return program;
  }

  /**
   * Compiles for these feeds, and again while the compiler needs more values.
   * @param {Feeds} feeds @param {Stop | null} stop @param {string[]} [outputs] for which alone the feeds suffice @returns {Promise<ProgramData>}
   */
  async specialise(feeds, stop, outputs) {
    for (;;) {
      this.checkValues(feeds);
      const program = await during(this.logOptions, () => this.compiler.specialise(this.describe(feeds), stop, outputs));
      this.needs = /** @type {Needs} */ (JSON.parse(this.compiler.needs));
      if (program) return program;
    }
  }

  /** The Program for the dims of these feeds alone, if a compiler can make one. @param {Feeds} feeds @param {Stop | null} stop */
  async forSizes(feeds, stop) {
    for (;;) {
      const { needs } = this.compiler;
      const program = await during(this.logOptions, () => this.compiler.forSizes?.(this.describe(feeds), stop));
      if (program || this.compiler.needs === needs) return program ?? null;
      this.needs = /** @type {Needs} */ (JSON.parse(this.compiler.needs));
      this.checkValues(feeds);
    }
  }

  /** Refuses feeds whose needed values the page did not send. @param {Feeds} feeds */
  checkValues(feeds) {
    for (const name of this.needs?.values ?? []) if (residentId(feeds[name] ?? null)) throw new StaleFeeds(name);
  }

  /** @param {Feeds} feeds */
  cacheKey(feeds) {
    return programKey(feeds, this.needs);
  }

  /** The key of a Program for the dims of these feeds alone. @param {Feeds} feeds */
  keyOfSizes(feeds) {
    return programKey(feeds, { values: this.needs?.values ?? [], dims: Object.keys(feeds), defaults: null });
  }

  /** The feeds as Python gets them: types and dims, and the values that it needs. @param {Feeds} feeds */
  describe(feeds) {
    const values = this.needs?.values ?? [];
    return mapValues(feeds, (feed, name) => describeFeed(feed, values.includes(name), false));
  }
}
