// The engine inside a service worker, which has neither `Worker` nor `import()`: what takes this file in, before or after the
// package, has a `Worker` that runs the engine in its own thread (docs/design/platforms.md#service-workers).

// @ts-expect-error no types, as for what is imported by an address
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
    if (!found) throw new Error(`${url} did not come`);
    return found;
  },

  async prefetch(...urls) {
    await Promise.all(urls.map(async (url) => {
      const response = await fetch(url).catch(() => null); // what is missing is told when it is wanted
      if (response?.ok) files.set(url, await response.arrayBuffer());
    }));
  },
}));

/** As much of a Worker as the package uses. There is one engine, whatever address it is asked for. */
class EngineHere {
  constructor() {
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    startEngine(port2);
  }

  /** @param {((event: MessageEvent) => void) | null} told */
  set onmessage(told) {
    this.port.onmessage = told;
  }

  /** @param {unknown} message @param {Transferable[]} transfer */
  postMessage(message, transfer = []) {
    this.port.postMessage(message, transfer);
  }

  terminate() {
    this.port.close();
  }
}

/** @type {any} */ (globalThis).Worker ??= EngineHere;
