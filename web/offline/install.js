// Makes a page work offline: stores the engine, the page's own files and models, from which a service worker
// (service_worker.js) answers.

import { SessionFailed } from '../common/errors.js';
import { platform } from '../common/platform.js';
import { readBody } from '../common/read_body.js';
import { trusted } from '../common/spawn.js';
import { digest } from '../storage/digest.js';
import { deleteModel, fetchAndStore, listModels } from '../storage/stored_models.js';
import { checkQuota, storageEstimate } from '../storage/quota.js';
import { nameFor, Versions } from './versions.js';
import { expectedFiles, wantedOf } from './version_files.js';

export { PyRuntimeError, InvalidInput, QuotaExceeded, SessionFailed } from '../common/errors.js';

/** @import { OfflineFile, Wanted } from './versions.js' */
/**
 * loaded, total: bytes of all files to fetch; total: 0 if unknown.
 * @typedef {(progress: { file: string, loaded: number, total: number }) => void} OnProgress
 */

const RELOAD_KEY = 'pyruntime-isolation'; // in sessionStorage: this module has asked the page to reload

/**
 * Stores what the page needs and starts the service worker. If all is stored already, fetches changes in the background for
 * the next visit.
 * @param {{ worker?: string, type?: WorkerType, scope?: string, isolation?: 'require-corp' | 'credentialless',
 *   engine?: string, lists?: string[], files?: string[], models?: (string | { url: string, version?: string })[], onProgress?: OnProgress,
 *   onUpdate?: (status: Status) => void, onError?: (error: Error) => void }} [options]
 */
export async function install(options = {}) {
  const wanted = wantedOf(options);
  const registration = await startServiceWorker(options);
  const store = await Versions.open(registration.scope);
  const book = await store.read();
  const onProgress = options.onProgress ?? (() => {});
  const updating = updateStore(store, wanted, onProgress, registration);
  if (!book.versions.length || JSON.stringify(book.wanted) !== JSON.stringify(wanted)) await updating;
  else {
    updating.then(async (changed) => changed && options.onUpdate?.(await status(options)))
      .catch((error) => options.onError?.(error)); // offline or out of space: the next visit tries again
  }
  return status(options);
}

/**
 * Fetches changes, for pages opened later. Returns whether there were any.
 * @param {{ scope?: string, onProgress?: OnProgress }} [options]
 */
export async function update(options = {}) {
  const { store, book, registration } = await openStore(options);
  if (!book.wanted) throw new SessionFailed('nothing is stored for this page', { hint: 'call install() first' });
  return updateStore(store, book.wanted, options.onProgress ?? (() => {}), registration);
}

/**
 * @param {Versions} store @param {Wanted} wanted @param {OnProgress} onProgress @param {ServiceWorkerRegistration | undefined} registration
 */
async function updateStore(store, wanted, onProgress, registration) {
  let complete = false; // otherwise fetched files stay for the next attempt
  try {
    return await store.inTurn(async () => {
      const book = await store.read();
      const name = await storeVersion(store, wanted, book, onProgress);
      complete = true;
      return name !== book.versions.at(-1)?.name;
    });
  } finally {
    registration?.active?.postMessage({ pyruntime: 'tidy', loose: complete });
  }
}

/** @typedef {Awaited<ReturnType<typeof status>>} Status */
/**
 * Returns a report on the stored version, and whether this page uses it.
 * @param {{ scope?: string, isolation?: string }} [options]
 */
export async function status(options = {}) {
  const { book: { versions }, registration } = await openStore(options);
  const controlled = Boolean(navigator.serviceWorker.controller);
  return {
    controlled,
    versions: versions.map(({ name, build, files }) => {
      const size = files.reduce((sum, file) => sum + file.size, 0);
      return { name, build, files: files.length, size };
    }),
    models: await listModels(),
    isolated: Boolean(globalThis.crossOriginIsolated),
    reload: Boolean(options.isolation && registration?.active) && needsReload(),
    ...await storageEstimate(),
  };
}

/** Whether a reload may isolate the page. True only once, so that a page does not reload forever. */
function needsReload() {
  if (globalThis.crossOriginIsolated || sessionStorage.getItem(RELOAD_KEY)) return false;
  sessionStorage.setItem(RELOAD_KEY, '1');
  return true;
}

/**
 * Removes everything that install() stored, including models, and the service worker.
 * @param {{ scope?: string }} [options]
 */
export async function remove(options = {}) {
  const { store, registration, scope } = await openStore(options);
  await store.inTurn(async () => {
    const { wanted } = await store.read();
    await Promise.all((wanted?.models ?? []).map(({ url }) => deleteModel(url)));
    await registration?.unregister();
    await caches.delete(nameFor(scope));
  });
}

/** @param {{ scope?: string }} options */
async function openStore({ scope: path }) {
  requireServiceWorker();
  const registration = await navigator.serviceWorker.getRegistration(path && platform.address(path));
  const scope = registration?.scope ?? platform.address(path ?? './');
  const store = await Versions.open(scope);
  return { registration, scope, store, book: await store.read() };
}

function requireServiceWorker() {
  if (navigator.serviceWorker && globalThis.caches) return;
  throw new SessionFailed('this page has no service workers', { hint: 'serve it over https or from localhost' });
}

/**
 * Resolves when the service worker is active.
 * @param {{ worker?: string, type?: WorkerType, scope?: string, isolation?: string }} options
 */
async function startServiceWorker({ worker = './offline.sw.js', type, scope, isolation }) {
  requireServiceWorker();
  const address = new URL(platform.address(worker));
  if (isolation) address.searchParams.set('isolation', isolation);
  try {
    const registration = await navigator.serviceWorker.register(trusted(address.href), { type, scope, updateViaCache: 'none' });
    const next = registration.installing ?? registration.waiting;
    while (next && next.state !== 'activated') {
      if (next.state === 'redundant') throw new Error('it failed to start');
      await new Promise((done) => next.addEventListener('statechange', done, { once: true }));
    }
    return registration;
  } catch (cause) {
    const { message } = /** @type {Error} */ (cause);
    const hint = 'serve offline.sw.js from the folder of the page';
    throw new SessionFailed(`cannot start the service worker ${address.href}: ${message}`, { hint, cause });
  }
}

// ── stored files ──

/**
 * Checks each file of the newest version and fetches those that are missing. Returns the version's name.
 * @param {Versions} store @param {Wanted} wanted @param {import('./versions.js').Book} before @param {OnProgress} onProgress
 */
async function storeVersion(store, wanted, before, onProgress) {
  const newest = before.versions.at(-1);
  const { build, files: expected } = await expectedFiles(wanted, store, newest);
  const isStored = await Promise.all(expected.map(async (file) => Boolean(file.hash && await store.find(file))));
  const missing = expected.filter((_, i) => !isStored[i]);
  const needed = missing.reduce((sum, { size }) => sum + size, 0);
  await checkQuota('the offline version of the page', needed);
  /** @type {Map<string, number>} */
  const loaded = new Map();
  const report = (/** @type {string} */ file, /** @type {number} */ bytes) => {
    loaded.set(file, bytes);
    onProgress({ file, loaded: [...loaded.values()].reduce((sum, size) => sum + size, 0), total: needed });
  };
  const cache = newest ? 'no-store' : 'no-cache'; // 'no-store' bypasses the service worker, which has the old files
  const files = [];
  for (const [i, file] of expected.entries()) {
    files.push(isStored[i] ? file : await fetchFile(store, file, cache, (bytes) => report(file.url, bytes)));
  }
  const name = (await digest(new TextEncoder().encode(JSON.stringify(files)))).slice(0, 16);
  await store.add({ name, build, files }, wanted);
  const dropped = (before.wanted?.models ?? []).filter(({ url }) => !wanted.models.some((model) => model.url === url));
  await Promise.all(dropped.map(({ url }) => deleteModel(url)));
  for (const model of wanted.models) await storeModel(model, (bytes) => report(model.url, bytes));
  return name;
}

/**
 * @param {Versions} store @param {OfflineFile} file @param {RequestCache} cache @param {(loaded: number) => void} report
 * @returns {Promise<OfflineFile>}
 */
async function fetchFile(store, { url, hash }, cache, report) {
  const response = await get(url, { cache });
  const bytes = await readBody(response, report);
  const found = { url, size: bytes.length, hash: await digest(bytes) };
  if (hash && found.hash !== hash) {
    const hint = 'serve all files of one build, and try again';
    throw new SessionFailed(`the hash of ${url} is not that of its list`, { hint });
  }
  await store.put(found, bytes, response.headers);
  return found;
}

/** @param {string} url @param {RequestInit} init */
async function get(url, init) {
  const response = await fetch(url, init).catch((cause) => {
    throw new SessionFailed(`cannot load ${url}: ${cause.message}`, { cause });
  });
  if (!response.ok) throw new SessionFailed(`cannot load ${url}: HTTP ${response.status}`);
  return response;
}

/** @param {{ url: string, version: string }} model @param {(loaded: number) => void} report */
async function storeModel({ url, version }, report) {
  /** @type {Error | null} */
  let failure = null;
  const fail = (/** @type {Error} */ error) => { failure = error; };
  const { written } = await fetchAndStore(url, version || true, report, (init) => get(url, init), fail);
  await written;
  if (failure) throw failure;
}
