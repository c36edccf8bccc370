// Starts workers, also from files of another origin.

import { platform } from './platform.js';

/**
 * A module worker. Browsers start none from another origin, whatever its headers: there a module of this origin imports
 * it, which takes CORS and, under a Content-Security-Policy, `worker-src blob:`.
 * @param {string} url @param {string} name @returns {Worker}
 */
export function spawn(url, name) {
  const Worker = /** @type {typeof globalThis.Worker} */ (platform.worker());
  return new Worker(isOurs(url) ? url : importing(url), { type: 'module', name });
}

/** Whether a worker can be started from it. @param {string} url */
function isOurs(url) {
  const { protocol, origin } = new URL(url, globalThis.location?.href);
  return ['blob:', 'data:', 'file:'].includes(protocol) || origin === globalThis.origin;
}

/** @type {Map<string, string>} by the address imported; kept as long as the page, for browsers read them late */
const modules = new Map();

/** @param {string} url */
function importing(url) {
  let made = modules.get(url);
  if (!made) {
    const code = `import ${JSON.stringify(url)};`;
    // A page of no origin (a sandboxed frame) gets no module worker from a blob in Chromium, and loses nothing by data:.
    made = globalThis.origin === 'null' ? `data:text/javascript,${encodeURIComponent(code)}`
      : URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
    modules.set(url, made);
  }
  return made;
}
