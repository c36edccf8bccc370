// Starts workers in the page for the engine's worker (docs/design/sessions.md#failures-and-timeouts).

import { spawn } from '../../common/spawn.js';

/**
 * Whether a worker that starts a worker may hang: in Firefox (153) the constructor waits for the page's thread, in about one of
 * 200 cases forever.
 */
export const workersHang = () => 'document' in globalThis && /\bGecko\/\d/.test(globalThis.navigator?.userAgent ?? '');

/** @import { Request } from '../../threads/remote_worker.js' */

export class WorkerHost {
  constructor() {
    const { port1, port2 } = new MessageChannel();
    /** The port for the engine's worker. */
    this.port = port2;
    this.own = port1;
    /** @type {Map<number, import('../../common/platform.js').Port>} */
    this.workers = new Map();
    port1.onmessage = ({ data }) => this.handle(data);
  }

  /** @param {Request} request */
  handle({ id, url, name, port }) {
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
