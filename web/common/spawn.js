// Starts workers, even from files of another origin.

import { SessionFailed } from './errors.js';
import { platform } from './platform.js';

/** Hint of errors: what the server must do. */
export const HINT = "serve all files of dist/ unchanged, from one folder; a Content-Security-Policy needs worker-src 'self'";

/** The hint for a script that cannot start. Vite serves packages outside of the project, such as linked ones, below /@fs/ only if its
 * settings allow it. @param {string} url */
export function startHint(url) {
  if (globalThis.navigator?.onLine === false) return 'the browser is offline: pages that start without a network install their files before (pyruntime/offline)';
  if (url.startsWith('file:')) return 'browsers start no worker in a page from a file: open it through a server, such as `pyruntime serve`';
  return url.includes('/@fs/') ? 'install a copy of the package, not a link, or list its folder in server.fs.allow of vite.config.js' : HINT;
}

/**
 * Starts a module worker. Browsers refuse to start a worker from another origin, even if its headers allow it. So the
 * worker starts from a small module of this origin that imports the file. This needs CORS and, under a
 * Content-Security-Policy, `worker-src blob:`.
 * @param {string} url @param {string} name @returns {import('./platform.js').Port}
 */
export function spawn(url, name) {
  const Worker = /** @type {import('./platform.js').PortClass} */ (platform.worker());
  return new Worker(trusted(isSameOrigin(url) ? url : importing(url)), { type: 'module', name });
}

/** A policy; its address is a TrustedScriptURL, which TypeScript takes for a text. @typedef {{ createScriptURL: (url: string) => string }} Policy */
/** @type {Policy | null} */
let policy = null;

/**
 * An address that pages with the policy `require-trusted-types-for 'script'` accept. If they do not allow a policy of this name, their
 * default policy decides.
 * @param {string} url
 */
export function trusted(url) {
  try {
    const { trustedTypes } = /** @type {{ trustedTypes?: { createPolicy: (name: string, rules: Policy) => Policy } }} */ (globalThis);
    policy ??= trustedTypes?.createPolicy('pyruntime', { createScriptURL: (address) => address }) ?? null;
  } catch { /* the page does not allow it */ }
  return policy?.createScriptURL(url) ?? url;
}

/**
 * An address from which a script can start: itself, unless it is a data: address, whose workers have no shared memory, or a copy
 * whose ending is no script's.
 * @param {string} url
 */
export async function scriptUrl(url) {
  if (!/^data:|\.bin(?=[?#]|$)/.test(url)) return url;
  try {
    const response = await fetch(url);
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    return URL.createObjectURL(new Blob([await response.arrayBuffer()], { type: 'text/javascript' }));
  } catch (cause) {
    throw new SessionFailed(`cannot load ${url.slice(0, 200)}: ${/** @type {Error} */ (cause).message}`, { hint: HINT, cause });
  }
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
