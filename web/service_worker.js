// The engine in a service worker, which has neither `Worker` nor `import()`. A script that includes this file gets a
// `Worker` that runs the engine in the script's own thread (docs/design/platforms.md#service-workers).

// @ts-expect-error it has no types
import * as glue from 'pyodide/pyodide.asm.mjs';
import { platform } from './common/platform.js';
import { startEngine } from './worker/engine.js';

/** By address. @type {Map<string, ArrayBuffer>} */
const files = new Map();

Object.assign(platform, /** @type {Partial<typeof platform>} */ ({
  worker: () => null, // no threads
  module: async () => glue,

  readNow(url) {
    const found = files.get(url);
    if (!found) throw new Error(`${url} was not prefetched`);
    return found;
  },

  async prefetch(...urls) {
    await Promise.all(urls.map(async (url) => {
      const response = await fetch(url).catch(() => null); // `readNow` reports it
      if (response?.ok) files.set(url, await response.arrayBuffer());
    }));
  },
}));

/** The part of a Worker that the package uses. The address is ignored: there is one engine. */
class LocalEngine {
  constructor() {
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    startEngine(port2);
  }

  /** @param {((event: MessageEvent) => void) | null} listener */
  set onmessage(listener) {
    this.port.onmessage = listener;
  }

  /** @param {unknown} message @param {Transferable[]} transfer */
  postMessage(message, transfer = []) {
    this.port.postMessage(message, transfer);
  }

  terminate() {
    this.port.close();
  }
}

/** @type {any} */ (globalThis).Worker ??= LocalEngine;
