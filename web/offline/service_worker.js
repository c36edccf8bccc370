// The part of a service worker that answers from stored files (install.js). A page and its workers get the files of one
// version: the newest when the page was opened.

import { digest } from '../storage/digest.js';
import { readStored, withoutHash } from '../storage/stored_models.js';
import { Versions, versionOf } from './versions.js';

/** @import { OfflineFile, Version } from './versions.js' */
/**
 * isolation: the Cross-Origin-Embedder-Policy to add, with an Opener-Policy.
 * @typedef {{ isolation?: 'require-corp' | 'credentialless' | null }} Options
 */
/**
 * An event of a service worker.
 * @typedef {{ request: Request, clientId: string, resultingClientId: string,
 *   respondWith: (answer: Promise<Response>) => void, waitUntil: (work: Promise<unknown>) => void }} FetchEvent
 */

/**
 * The global of a service worker, which TypeScript has only without the DOM.
 * @typedef {object} Scope
 * @property {(type: 'install' | 'activate' | 'fetch' | 'message', listener: (event: never) => void) => void} addEventListener
 * @property {() => Promise<void>} skipWaiting
 * @property {{ claim(): Promise<void>, matchAll(which: { type: string, includeUncontrolled: boolean }): Promise<{ id: string }[]> }} clients
 * @property {{ scope: string }} registration
 */
const scope = /** @type {Scope} */ (/** @type {unknown} */ (globalThis));
const ISOLATED = ['document', 'iframe', 'frame', 'worker', 'sharedworker']; // destinations that isolation applies to
const FROM_SERVER = ['reload', 'no-cache']; // cache modes that request the server's model

/** Adds event listeners. The page's own may come before or after; the first one that answers a request wins. @param {Options} [options] */
export function listen({ isolation = null } = {}) {
  scope.addEventListener('install', () => scope.skipWaiting());
  scope.addEventListener('activate', (/** @type {FetchEvent} */ event) => event.waitUntil(scope.clients.claim()));
  scope.addEventListener('message', (/** @type {MessageEvent & Pick<FetchEvent, 'waitUntil'>} */ event) => {
    if (event.data?.pyruntime === 'tidy') event.waitUntil(tidy(event.data.loose));
  });
  scope.addEventListener('fetch', (/** @type {FetchEvent} */ event) => {
    const { method, cache, mode, headers } = event.request;
    if (method !== 'GET' || headers.has('range') || cache === 'no-store' && mode !== 'navigate') return;
    event.respondWith(answer(event).catch(() => unreachable(event.request)).then((response) => withIsolation(response, event.request, isolation)));
  });
}

const versions = () => Versions.open(scope.registration.scope);

/** Removes unused files. @param {boolean} loose files of no version, too */
async function tidy(loose) {
  const clients = await scope.clients.matchAll({ type: 'all', includeUncontrolled: true });
  await (await versions()).tidy(clients.map(({ id }) => id), loose);
}

/** @param {FetchEvent} event @returns {Promise<Response>} */
async function answer(event) {
  const { request } = event;
  const found = await storedFile(event).catch(() => null);
  return found ?? fetch(request).catch(async (cause) => {
    const model = await storedModel(request.url).catch(() => null);
    if (model) return model;
    throw cause;
  });
}

/**
 * What neither the network nor the store has. An answer never rejects: Firefox would report corrupted content
 * (NS_ERROR_INTERCEPTION_FAILED). A page's fetch() rejects by a network error; a page that is opened is a text.
 * @param {Request} request
 */
function unreachable({ mode, url }) {
  if (mode !== 'navigate') return Response.error();
  const text = `${url} cannot be reached, and this browser has not stored it for offline visits.\nConnect to the network, then reload.\n`;
  return new Response(text, { status: 503, headers: { 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store' } });
}

/** @param {string} url @returns {Promise<Response | null>} */
async function storedModel(url) {
  const model = await readStored(url);
  return model && new Response(model, { headers: { 'content-type': 'application/octet-stream' } });
}

/** @param {FetchEvent} event @returns {Promise<Response | null>} */
async function storedFile(event) {
  const { request, clientId, resultingClientId } = event;
  const store = await versions();
  const book = await store.read();
  const opens = request.mode === 'navigate';
  const version = opens ? book.versions.at(-1) : versionOf(clientId, book);
  if (version && resultingClientId) {
    await store.change(({ pages }) => { pages[resultingClientId] = { name: version.name, since: Date.now() }; });
  }
  const file = version?.files.find(({ url }) => addresses(request.url, opens).includes(url));
  if (file && version) return await store.find(file) ?? refetch(store, version, file);
  const isModel = book.wanted?.models.some(({ url }) => url === withoutHash(request.url));
  return isModel && !FROM_SERVER.includes(request.cache) ? storedModel(request.url) : null;
}

/**
 * Addresses under which a file may be listed. A page's query is ignored, and index.html may be left out.
 * @param {string} url @param {boolean} opens a page
 */
function addresses(url, opens) {
  const address = new URL(url);
  address.hash = '';
  if (!opens) return [address.href];
  address.search = '';
  const { href } = address;
  return [url, href, href.endsWith('/') ? `${href}index.html` : href.replace(/index\.html$/, '')];
}

/**
 * Fetches a damaged or missing file again. If the server now has another one, drops this version and older ones: pages then
 * come from the network until they have stored the next version.
 * @param {Versions} store @param {Version} version @param {OfflineFile} file
 */
async function refetch(store, version, file) {
  const { ok, status, headers, body } = await fetch(file.url, { cache: 'no-store' });
  if (!ok) return new Response(body, { status, headers });
  const bytes = new Uint8Array(await new Response(body).arrayBuffer());
  if (await digest(bytes) === file.hash) {
    await store.put(file, bytes, headers).catch(() => {}); // out of space: fetched again next time
  } else {
    await store.change((book) => {
      book.versions.splice(0, book.versions.findIndex(({ name }) => name === version.name) + 1);
    });
  }
  return new Response(bytes, { headers }); // browsers refuse to open a page from a response that was redirected
}

/** @param {Response} response @param {Request} request @param {Options['isolation']} policy */
function withIsolation(response, { destination, mode }, policy) {
  if (!policy || response.status === 0 || !ISOLATED.includes(destination) && mode !== 'navigate') return response;
  const headers = new Headers(response.headers);
  headers.set('Cross-Origin-Embedder-Policy', policy);
  headers.set('Cross-Origin-Opener-Policy', 'same-origin');
  const { status, statusText, body } = response;
  return new Response([101, 204, 205, 304].includes(status) ? null : body, { status, statusText, headers });
}
