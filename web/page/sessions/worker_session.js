// A session that runs in the worker: packs feeds, calls the worker, and notes which outputs the worker keeps.

import { mapValues } from '../../common/records.js';
import { pool } from '../engine/client.js';
import { Leases } from '../tensors/cached_outputs.js';
import { Packer, packTarget } from '../tensors/wire_tensors.js';

/** @import { Calls, WireValue } from '../../common/protocol.js' */
/** @import { Cancellation } from '../engine/cancellation.js' */
/** @import { Feeds } from './page_runner.js' */
/** @import { Tensor } from 'onnxruntime-common' */
/**
 * An output that the worker keeps.
 * @typedef {import('../../common/protocol.js').WireTensor & { held: number, rows?: import('../tensors/appended_rows.js').Rows }} CachedWire
 */

export class WorkerSession {
  /** @param {import('../../common/protocol.js').Caller} caller @param {number} session its number in the worker */
  constructor(caller, session) {
    this.caller = caller;
    this.session = session;
    /** Gets the session's states after faults. @type {(state: import('../../common/protocol.js').State) => void} */
    this.changed = () => {};
  }

  /**
   * @param {Feeds} feeds @param {Record<string, Tensor | null>} fetches @param {Cancellation | null} cancellation @param {boolean} isTimed
   * @returns {Promise<import('../../common/protocol.js').RunResult>}
   */
  async run(feeds, fetches, cancellation, isTimed) {
    const targets = mapValues(fetches, (into) => into && this.caller.sharesMemory ? packTarget(into) : null);
    const leases = new Leases(Object.values(feeds), this);
    try {
      const result = await this.send('run', feeds, { fetches: targets, profile: isTimed }, cancellation?.watch, leases);
      for (const wire of Object.values(result.outputs)) if (isCached(wire)) wire.rows = leases.rowsOf(wire);
      return result;
    } finally {
      leases.release();
    }
  }

  /**
   * Calls the worker with feeds. If the worker no longer has an output that was fed by id, calls again with all data. In any case
   * returns the pool's buffers.
   * @template {'run' | 'verify' | 'profile' | 'timeline' | 'tune' | 'listing'} K @param {K} call @param {Feeds} feeds @param {object} more parameters
   * @param {import('../../common/protocol.js').Watch} [watch] cancels it @param {Leases | null} [leases]
   * @returns {Promise<Calls[K]['result']>}
   */
  async send(call, feeds, more, watch, leases = null) {
    const packer = new Packer(this.caller.sharesMemory ? pool : null, leases);
    const send = (/** @type {Record<string, WireValue>} */ wire) => {
      const params = /** @type {Calls[K]['params']} */ ({ session: this.session, feeds: wire, ...more });
      return this.caller.call(call, params, { transfer: packer.transfer, watch, progress: ({ state }) => this.changed(state) });
    };
    try {
      const wire = packer.packAll(feeds);
      const result = await send(wire);
      return typeof result === 'object' && 'stale' in result && result.stale ? await send(packer.withData(wire)) : result;
    } finally {
      pool.give(packer.borrowed);
    }
  }

  /** @param {Feeds} feeds @param {import('../../session/verify.js').How} how */
  verify(feeds, how) {
    return this.send('verify', feeds, how);
  }

  /** @param {Feeds} feeds */
  timeline(feeds) {
    return this.send('timeline', feeds, {});
  }

  /** @param {Feeds} feeds @param {number} repeat */
  profile(feeds, repeat) {
    return this.send('profile', feeds, { repeat });
  }

  /** @param {Feeds} feeds @param {number} seconds */
  tune(feeds, seconds) {
    return this.send('tune', feeds, { seconds });
  }

  /** @param {Feeds | null} feeds @param {{ node: string, code: boolean }} what */
  listing(feeds, what) {
    return this.send('listing', feeds ?? {}, { forAll: !feeds, ...what });
  }

  /**
   * @template {'memory' | 'metrics' | 'explain' | 'trim' | 'release' | 'program' | 'export'} K @param {K} call
   * @param {Omit<Calls[K]['params'], 'session'>} [params] @returns {Promise<Calls[K]['result']>}
   */
  ask(call, params) {
    return this.caller.call(call, /** @type {Calls[K]['params']} */ ({ session: this.session, ...params }));
  }

  /** @param {Record<string, number | number[]>} dims */
  prepare(dims) {
    return this.caller.call('prepare', { session: this.session, dims });
  }

  trim() {
    return this.ask('trim');
  }

  release() {
    return this.ask('release');
  }
}

/** @param {WireValue} wire @returns {wire is CachedWire} */
export const isCached = (wire) => Boolean(wire && 'held' in wire && wire.held);
