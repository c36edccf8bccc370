// What makes a page work without a network: the engine, the page's own files and models are kept, and a service worker
// (service_worker.js) answers from them.

import { SessionFailed } from '../common/errors.js';
import { platform } from '../common/platform.js';
import { readBody } from '../common/read_body.js';
import { digest } from '../storage/digest.js';
import { deleteModel, fetchAndStore, listModels } from '../storage/stored_models.js';
import { checkQuota, storageEstimate } from '../storage/quota.js';
import { nameFor, Versions } from './versions.js';
import { expectedFiles, wantedOf } from './version_files.js';

export { PyRuntimeError, InvalidInput, QuotaExceeded, SessionFailed } from '../common/errors.js';

/** @typedef {import('./versions.js').OfflineFile} OfflineFile */
/** @typedef {import('./versions.js').Wanted} Wanted */
/** loaded, total: bytes of all that is fetched; total 0 where the server does not tell. @typedef {(progress: { file: string, loaded: number, total: number }) => void} OnProgress */

const TOLD = 'pyruntime-isolation'; // of the session: that it was told to reload

/**
 * Keeps what the page needs and starts the service worker. Where it is kept already, what is new is fetched behind the
 * page's back, for the next visit.
 * @param {{ worker?: string, type?: WorkerType, scope?: string, isolation?: 'require-corp' | 'credentialless', engine?: string, lists?: string[], files?: string[],
 *   models?: (string | { url: string, version?: string })[], onProgress?: OnProgress, onUpdate?: (status: Status) => void, onError?: (error: Error) => void }} [options]
 */
export async function install(options = {}) {
  const wanted = wantedOf(options);
  const registration = await started(options);
  const store = await Versions.open(registration.scope);
  const book = await store.read();
  const onProgress = options.onProgress ?? (() => {});
  if (!book.versions.length || JSON.stringify(book.wanted) !== JSON.stringify(wanted)) await updated(store, wanted, onProgress, registration);
  else updated(store, wanted, onProgress, registration).then(async (changed) => changed && options.onUpdate?.(await status(options))).catch((error) => options.onError?.(error)); // offline, or no room: next time
  return status(options);
}

/** Fetches what is new; pages that are opened from now on have it. Whether there was anything. @param {{ scope?: string, onProgress?: OnProgress }} [options] */
export async function update(options = {}) {
  const { store, book, registration } = await opened(options);
  if (!book.wanted) throw new SessionFailed('nothing is kept here', { hint: 'call install() first' });
  return updated(store, book.wanted, options.onProgress ?? (() => {}), registration);
}

/** @param {Versions} store @param {Wanted} wanted @param {OnProgress} onProgress @param {ServiceWorkerRegistration | undefined} registration */
async function updated(store, wanted, onProgress, registration) {
  let whole = false; // else what was fetched stays, for the next time
  try {
    return await store.inTurn(async () => {
      const book = await store.read();
      const name = await bring(store, wanted, book, onProgress);
      whole = true;
      return name !== book.versions.at(-1)?.name;
    });
  } finally {
    registration?.active?.postMessage({ pyruntime: 'tidy', loose: whole });
  }
}

/** @typedef {Awaited<ReturnType<typeof status>>} Status */
/** What is kept, and whether it is in use. @param {{ scope?: string, isolation?: string }} [options] */
export async function status(options = {}) {
  const { book: { versions }, registration } = await opened(options);
  const controlled = Boolean(navigator.serviceWorker.controller);
  return {
    controlled,
    versions: versions.map(({ name, build, files }) => ({ name, build, files: files.length, size: files.reduce((sum, { size }) => sum + size, 0) })),
    models: await listModels(),
    isolated: Boolean(globalThis.crossOriginIsolated),
    reload: Boolean(options.isolation && registration?.active) && reloads(),
    ...await storageEstimate(),
  };
}

/** Whether a reload would isolate the page: it is told once, for where it does not help it must not be done for ever. */
function reloads() {
  if (globalThis.crossOriginIsolated || sessionStorage.getItem(TOLD)) return false;
  sessionStorage.setItem(TOLD, '1');
  return true;
}

/** Removes all that install() made, models too. @param {{ scope?: string }} [options] */
export async function remove(options = {}) {
  const { store, registration, scope } = await opened(options);
  await store.inTurn(async () => {
    const { wanted } = await store.read();
    await Promise.all((wanted?.models ?? []).map(({ url }) => deleteModel(url)));
    await registration?.unregister();
    await caches.delete(nameFor(scope));
  });
}

/** @param {{ scope?: string }} options */
async function opened({ scope: asked }) {
  requireServiceWorker();
  const registration = await navigator.serviceWorker.getRegistration(asked && platform.address(asked));
  const scope = registration?.scope ?? platform.address(asked ?? './');
  const store = await Versions.open(scope);
  return { registration, scope, store, book: await store.read() };
}

function requireServiceWorker() {
  if (navigator.serviceWorker && globalThis.caches) return;
  throw new SessionFailed('this page has no service workers', { hint: 'serve it by https, or from localhost' });
}

/** The service worker, once it runs. @param {{ worker?: string, type?: WorkerType, scope?: string, isolation?: string }} options */
async function started({ worker = './offline.sw.js', type, scope, isolation }) {
  requireServiceWorker();
  const address = new URL(platform.address(worker));
  if (isolation) address.searchParams.set('isolation', isolation);
  try {
    const registration = await navigator.serviceWorker.register(address, { type, scope, updateViaCache: 'none' });
    const coming = registration.installing ?? registration.waiting;
    while (coming && coming.state !== 'activated') {
      if (coming.state === 'redundant') throw new Error('it failed to start');
      await new Promise((done) => coming.addEventListener('statechange', done, { once: true }));
    }
    return registration;
  } catch (cause) {
    throw new SessionFailed(`cannot start the service worker ${address.href}: ${/** @type {Error} */ (cause).message}`, { hint: 'serve offline.sw.js from the folder of the page', cause });
  }
}

// ── what is kept ──

/** The newest version, checked file by file; what is not there is fetched. Its name. @param {Versions} store @param {Wanted} wanted @param {import('./versions.js').Book} before @param {OnProgress} onProgress */
async function bring(store, wanted, before, onProgress) {
  const newest = before.versions.at(-1);
  const { build, files: expected } = await expectedFiles(wanted, store, newest);
  const there = await Promise.all(expected.map(async (file) => Boolean(file.hash && await store.find(file))));
  const missing = expected.filter((_, i) => !there[i]);
  const needed = missing.reduce((sum, { size }) => sum + size, 0);
  await checkQuota('what the page needs without a network', needed);
  /** @type {Map<string, number>} */
  const loaded = new Map();
  const tell = (/** @type {string} */ file, /** @type {number} */ bytes) => {
    loaded.set(file, bytes);
    onProgress({ file, loaded: [...loaded.values()].reduce((sum, size) => sum + size, 0), total: needed });
  };
  const cache = newest ? 'no-store' : 'no-cache'; // past the service worker, which has the files of before
  const files = [];
  for (const [i, file] of expected.entries()) files.push(there[i] ? file : await fetched(store, file, cache, (bytes) => tell(file.url, bytes)));
  const name = (await digest(new TextEncoder().encode(JSON.stringify(files)))).slice(0, 16);
  await store.add({ name, build, files }, wanted);
  const dropped = (before.wanted?.models ?? []).filter(({ url }) => !wanted.models.some((model) => model.url === url));
  await Promise.all(dropped.map(({ url }) => deleteModel(url)));
  for (const model of wanted.models) await keepModel(model, (bytes) => tell(model.url, bytes));
  return name;
}

/** @param {Versions} store @param {OfflineFile} file @param {RequestCache} cache @param {(loaded: number) => void} tell @returns {Promise<OfflineFile>} */
async function fetched(store, { url, hash }, cache, tell) {
  const response = await get(url, { cache });
  const bytes = await readBody(response, tell);
  const found = { url, size: bytes.length, hash: await digest(bytes) };
  if (hash && found.hash !== hash) throw new SessionFailed(`${url} is not the file that its list tells of`, { hint: 'serve all files of one build; try again when it is there' });
  await store.keep(found, bytes, response.headers);
  return found;
}

/** @param {string} url @param {RequestInit} init */
async function get(url, init) {
  const response = await fetch(url, init).catch((cause) => { throw new SessionFailed(`cannot load ${url}: ${cause.message}`, { cause }); });
  if (!response.ok) throw new SessionFailed(`cannot load ${url}: HTTP ${response.status}`);
  return response;
}

/** @param {{ url: string, version: string }} model @param {(loaded: number) => void} tell */
async function keepModel({ url, version }, tell) {
  /** @type {Error | null} */
  let failure = null;
  const { written } = await fetchAndStore(url, version || true, tell, (init) => get(url, init), (error) => { failure = error; });
  await written;
  if (failure) throw failure;
}
