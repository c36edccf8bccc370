// The part of a service worker that answers from what the page keeps (install.js). Each page gets the files of one version,
// the one that was newest when it was opened, and so do its workers.

import { digest } from '../storage/digest.js';
import { readStored, withoutHash } from '../storage/stored_models.js';
import { Versions, versionOf } from './versions.js';

/** @typedef {import('./versions.js').Version} Version */
/** @typedef {import('./versions.js').OfflineFile} OfflineFile */
/** isolation: the Cross-Origin-Embedder-Policy to add, with its Opener-Policy. @typedef {{ isolation?: 'require-corp' | 'credentialless' | null }} Options */
/** What TypeScript knows of service workers only without the DOM. @typedef {{ request: Request, clientId: string, resultingClientId: string, respondWith: (answer: Promise<Response>) => void, waitUntil: (work: Promise<unknown>) => void }} FetchEvent */

const scope = /** @type {any} */ (globalThis);
const PLACES = ['document', 'iframe', 'frame', 'worker', 'sharedworker']; // what isolation is a property of
const FRESH = ['reload', 'no-cache']; // what asks for the server's model, not for a kept one

/** Listens. Before or after listeners of one's own: the first that answers a request does. @param {Options} [options] */
export function listen({ isolation = null } = {}) {
  scope.addEventListener('install', () => scope.skipWaiting());
  scope.addEventListener('activate', (/** @type {FetchEvent} */ event) => event.waitUntil(scope.clients.claim()));
  scope.addEventListener('message', (/** @type {any} */ event) => event.data?.pyruntime === 'tidy' && event.waitUntil(tidy(event.data.loose)));
  scope.addEventListener('fetch', (/** @type {FetchEvent} */ event) => {
    const { method, cache, mode, headers } = event.request;
    if (method !== 'GET' || headers.has('range') || cache === 'no-store' && mode !== 'navigate') return;
    event.respondWith(answer(event).then((response) => isolated(response, event.request, isolation)));
  });
}

const versions = () => Versions.open(scope.registration.scope);

/** @param {boolean} loose files of no version, too */
async function tidy(loose) {
  const clients = await scope.clients.matchAll({ type: 'all', includeUncontrolled: true });
  await (await versions()).tidy(clients.map((/** @type {{ id: string }} */ { id }) => id), loose);
}

/** @param {FetchEvent} event @returns {Promise<Response>} */
async function answer(event) {
  const { request } = event;
  const found = await kept(event).catch(() => null);
  return found ?? fetch(request).catch(async (cause) => {
    const model = await keptModel(request.url).catch(() => null);
    if (model) return model;
    throw cause;
  });
}

/** @param {string} url @returns {Promise<Response | null>} */
async function keptModel(url) {
  const model = await readStored(url);
  return model && new Response(model, { headers: { 'content-type': 'application/octet-stream' } });
}

/** @param {FetchEvent} event @returns {Promise<Response | null>} */
async function kept(event) {
  const { request, clientId, resultingClientId } = event;
  const store = await versions();
  const book = await store.read();
  const opens = request.mode === 'navigate';
  const version = opens ? book.versions.at(-1) : versionOf(clientId, book);
  if (version && resultingClientId) await store.change(({ pages }) => { pages[resultingClientId] = { name: version.name, since: Date.now() }; });
  const file = version?.files.find(({ url }) => addresses(request.url, opens).includes(url));
  if (file && version) return await store.find(file) ?? mended(store, version, file);
  const wanted = book.wanted?.models.some(({ url }) => url === withoutHash(request.url));
  return wanted && !FRESH.includes(request.cache) ? keptModel(request.url) : null;
}

/** Where a file may be listed: a page by its folder too, and whatever its query says. @param {string} url @param {boolean} opens a page */
function addresses(url, opens) {
  const address = new URL(url);
  address.hash = '';
  if (!opens) return [address.href];
  address.search = '';
  const { href } = address;
  return [url, href, href.endsWith('/') ? `${href}index.html` : href.replace(/index\.html$/, '')];
}

/**
 * A file that is damaged or gone, fetched again. If the server has another one by now, its version cannot be mended: it
 * is given up with those before it, and pages come from the network until they have kept the next one.
 * @param {Versions} store @param {Version} version @param {OfflineFile} file
 */
async function mended(store, version, file) {
  const response = await fetch(file.url, { cache: 'no-store' });
  if (!response.ok) return response;
  const bytes = new Uint8Array(await response.clone().arrayBuffer());
  if (await digest(bytes) === file.hash) await store.keep(file, bytes, response.headers).catch(() => {}); // no room: next time again
  else await store.change((book) => { book.versions.splice(0, book.versions.findIndex(({ name }) => name === version.name) + 1); });
  return response;
}

/** @param {Response} response @param {Request} request @param {Options['isolation']} policy */
function isolated(response, { destination, mode }, policy) {
  if (!policy || response.status === 0 || !PLACES.includes(destination) && mode !== 'navigate') return response;
  const headers = new Headers(response.headers);
  headers.set('Cross-Origin-Embedder-Policy', policy);
  headers.set('Cross-Origin-Opener-Policy', 'same-origin');
  const { status, statusText, body } = response;
  return new Response([101, 204, 205, 304].includes(status) ? null : body, { status, statusText, headers });
}
