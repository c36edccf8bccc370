// Starts workers, even from files of another origin.

import { platform } from './platform.js';

/**
 * Starts a module worker. Browsers refuse to start a worker from another origin, even if its headers allow it. So the
 * worker starts from a small module of this origin that imports the file. This needs CORS and, under a
 * Content-Security-Policy, `worker-src blob:`.
 * @param {string} url @param {string} name @returns {Worker}
 */
export function spawn(url, name) {
  const Worker = /** @type {typeof globalThis.Worker} */ (platform.worker());
  return new Worker(isSameOrigin(url) ? url : importing(url), { type: 'module', name });
}

/** Whether a worker can start from this file. @param {string} url */
function isSameOrigin(url) {
  const { protocol, origin } = new URL(url, globalThis.location?.href);
  return ['blob:', 'data:', 'file:'].includes(protocol) || origin === globalThis.origin;
}

/**
 * Addresses of modules, by the address that they import. Never revoked, because browsers may read them later.
 * @type {Map<string, string>}
 */
const modules = new Map();

/** @param {string} url */
function importing(url) {
  let module = modules.get(url);
  if (!module) {
    const code = `import ${JSON.stringify(url)};`;
    // In a sandboxed frame (origin null) Chromium starts no module worker from a blob. data: works as well there.
    module = globalThis.origin === 'null' ? `data:text/javascript,${encodeURIComponent(code)}`
      : URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
    modules.set(url, module);
  }
  return module;
}
