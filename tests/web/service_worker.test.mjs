// What the service worker of offline visits answers without a network: always a Response, because a rejected answer is an
// NS_ERROR_INTERCEPTION_FAILED in Firefox.

import assert from 'node:assert/strict';
import test from 'node:test';
import { listen } from '../../web/offline/service_worker.js';

const PAGE = 'https://site.test/other.html';
const listeners = {};

Object.assign(globalThis, {
  addEventListener: (kind, listener) => { listeners[kind] = listener; },
  registration: { scope: 'https://site.test/' },
});
listen({ isolation: 'require-corp' });

/** The answer to a request; null: the browser's own. Response.error() gives a network error to the page. */
async function answer({ mode = 'cors', destination = '', headers = new Headers() }) {
  let answered = null;
  listeners.fetch({
    request: { url: PAGE, method: 'GET', cache: 'default', mode, destination, headers }, clientId: 'page', resultingClientId: '',
    respondWith: (answer) => { answered = answer; }, waitUntil: () => {},
  });
  return answered;
}

const NO_STORES = {
  'no Cache Storage': undefined,
  'a Cache Storage that cannot be opened': { open: async () => { throw new Error('out of space'); } },
  'an empty store': { open: async () => ({ match: async () => undefined, put: async () => {}, keys: async () => [] }) },
};
const FAILURES = {
  'no network': async () => { throw new TypeError('NetworkError when attempting to fetch resource.'); },
  'a page that leaves': async () => { throw new DOMException('aborted', 'AbortError'); },
  'a body that was read before': () => { throw new TypeError('Body has already been consumed.'); },
};

for (const [store, caches] of Object.entries(NO_STORES)) {
  for (const [failure, fetch] of Object.entries(FAILURES)) {
    test(`${store}, ${failure}: a script gets a network error, a page a text`, async () => {
      Object.assign(globalThis, { caches, fetch });
      const script = await answer({ destination: 'script' });
      assert.equal(script.type, 'error');
      const page = await answer({ mode: 'navigate', destination: 'document' });
      assert.equal(page.status, 503);
      assert.equal(page.headers.get('cross-origin-embedder-policy'), 'require-corp');
      assert.match(await page.text(), /other\.html cannot be reached.*not stored/);
    });
  }
}

test('what the network answers is passed on', async () => {
  Object.assign(globalThis, { caches: NO_STORES['an empty store'], fetch: async () => new Response('there', { status: 404 }) });
  const found = await answer({ mode: 'navigate', destination: 'document' });
  assert.deepEqual([found.status, await found.text()], [404, 'there']);
});

test('parts of files are left to the browser', async () => {
  assert.equal(await answer({ headers: new Headers({ range: 'bytes=0-' }) }), null);
});
