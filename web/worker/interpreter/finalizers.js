// WebKit runs finalizers while a synchronous XMLHttpRequest waits (WebKitGTK 2.50). Python reads parts of its library by such
// requests, and has released its lock then: Pyodide's finalizer of a proxy finds the lock not held ("NoGilError") and ends the
// interpreter. So its finalizers wait until the read has ended.

import { platform } from '../../common/platform.js';

/** Registries that are made until the returned function is called run no finalizer while `platform.readNow` waits. */
export function deferFinalizers() {
  const Native = globalThis.FinalizationRegistry;
  if (!Native) return () => {};
  let reads = 0;
  const { readNow } = platform;
  platform.readNow = (url) => {
    reads++;
    try {
      return readNow(url);
    } finally {
      reads--;
    }
  };
  globalThis.FinalizationRegistry = new Proxy(Native, {
    construct(_, [cleanup]) {
      const run = (/** @type {unknown} */ held) => void (reads ? setTimeout(run, 0, held) : cleanup(held));
      return new Native(run);
    },
  });
  return () => { globalThis.FinalizationRegistry = Native; };
}
