// Workers that the page starts for the engine's worker (docs/design/sessions.md#failures-and-timeouts).

import { spawn } from '../../common/spawn.js';

/**
 * Whether a worker that starts a worker may wait for ever: in Firefox (153) its constructor waits for the page's thread, and
 * one time in some 200 it never comes back.
 */
export const workersHang = () => 'document' in globalThis && /\bGecko\/\d/.test(globalThis.navigator?.userAgent ?? '');

/** @typedef {import('../../threads/remote_worker.js').Wish} Wish */

/** Those of one engine. */
export class WorkerHost {
  constructor() {
    const { port1, port2 } = new MessageChannel();
    /** Through which the engine asks. */
    this.port = port2;
    this.own = port1;
    /** @type {Map<number, Worker>} */
    this.workers = new Map();
    port1.onmessage = ({ data }) => this.take(data);
  }

  /** @param {Wish} wish */
  take({ id, url, name, port }) {
    if (!url || !port) {
      this.workers.get(id)?.terminate();
      return void this.workers.delete(id);
    }
    const failed = (/** @type {{ message: string }} */ { message }) => this.own.postMessage({ id, message });
    try {
      const worker = spawn(url, name ?? '');
      this.workers.set(id, worker);
      worker.onerror = failed;
      worker.postMessage({ port }, [port]);
    } catch (error) {
      failed(/** @type {Error} */ (error));
    }
  }

  end() {
    this.own.close();
    for (const worker of this.workers.values()) worker.terminate();
  }
}
