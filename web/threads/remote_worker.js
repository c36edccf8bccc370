// A class like `Worker` for the engine's worker: the page starts each worker (web/page/engine/worker_host.js); messages use a port.

/**
 * Asks the page to start a worker; without a port, to end it.
 * @typedef {{ id: number, url?: string, name?: string, port?: MessagePort }} Request
 */

/** @param {MessagePort} page @returns {import('../common/platform.js').PortClass} */
export function remoteWorkerClass(page) {
  /** @type {Map<number, RemoteWorker>} */
  const started = new Map();
  page.onmessage = ({ data: { id, message } }) => started.get(id)?.onerror?.(/** @type {ErrorEvent} */ ({ message }));

  class RemoteWorker {
    /** @param {string | object} url a string or a TrustedScriptURL @param {{ name?: string }} options */
    constructor(url, { name }) {
      const { port1, port2 } = new MessageChannel();
      this.id = started.size + 1;
      started.set(this.id, this);
      this.port = port1;
      /** @type {((event: MessageEvent) => void) | null} */
      this.onmessage = null;
      /** @type {((event: ErrorEvent) => void) | null} */
      this.onerror = null;
      /** @type {((event: MessageEvent) => void) | null} */
      this.onmessageerror = null;
      port1.onmessage = (event) => this.onmessage?.(event);
      page.postMessage({ id: this.id, url: String(url), name, port: port2 }, [port2]); // a TrustedScriptURL cannot be cloned
    }

    /** @param {unknown} message @param {Transferable[]} [transfer] */
    postMessage(message, transfer = []) {
      this.port.postMessage(message, transfer);
    }

    terminate() {
      this.port.close();
      page.postMessage({ id: this.id });
    }
  }

  return RemoteWorker;
}
