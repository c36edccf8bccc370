// Downloads that the worker asks the page for.

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';

import { platform } from '../../web/common/platform.js';
import { replacedFetch, servedFetch } from '../../web/page/engine/page_fetch.js';
import { fetchFile } from '../../web/worker/files/download.js';
import { pageFetch, usePageFetch } from '../../web/worker/files/page_fetch.js';
import { patience } from '../../web/worker/files/resumable_fetch.js';

const { fetch } = globalThis;
const { reportsWorkerExit } = platform;
afterEach(() => {
  Object.assign(globalThis, { fetch });
  Object.assign(platform, { reportsWorkerExit });
});

/** The worker's `fetch`, answered by `serve`. */
function asked(serve) {
  const port = servedFetch(serve);
  port.unref();
  return { port, get: pageFetch(port) };
}

/** What a `fetch` says of itself. */
const shown = (text) => Object.assign(() => {}, { toString: () => text });

for (const [text, isOwn] of [
  ['function fetch() { [native code] }', true], ['function fetch() {\n    [native code]\n}', true],
  ['function () { [native code] }', false], ['function bound fetch() { [native code] }', false], ['async (url) => real(url)', false],
]) {
  test(`is it the browser's own? ${text.replaceAll('\n', ' ')}`, (t) => {
    platform.reportsWorkerExit = false;
    globalThis.fetch = shown(text);
    t.mock.method(Function.prototype, 'toString', () => text);
    assert.equal(replacedFetch(), isOwn ? null : globalThis.fetch);
    platform.reportsWorkerExit = true;
    assert.equal(replacedFetch(), null);
  });
}

test('requests and responses cross whole', async () => {
  const seen = [];
  const { port, get } = asked(async (url, { signal, ...init }) => {
    seen.push([url, init, signal.aborted]);
    return new Response('text', { status: 206, statusText: 'Partial', headers: { etag: '"1"' } });
  });
  const response = await get('https://a/', { headers: { range: 'bytes=0-1' }, cache: 'no-store' });
  assert.deepEqual([response.status, response.statusText, response.headers.get('etag'), await response.text()], [206, 'Partial', '"1"', 'text']);
  assert.deepEqual(seen, [['https://a/', { headers: { range: 'bytes=0-1' }, cache: 'no-store' }, false]]);
  assert.equal((await get('https://b/', { method: 'HEAD' })).status, 206);
  port.close();
});

test('a response that has some members only, errors, and a request that is stopped', async () => {
  let stopped;
  const { port, get } = asked((url, { signal }) => {
    if (url === 'part') return { ok: true, arrayBuffer: async () => new ArrayBuffer(3) };
    if (url === 'missing') return { ok: false, arrayBuffer: async () => new ArrayBuffer(0) };
    if (url === 'error') throw new Error('no network');
    return new Promise(() => signal.addEventListener('abort', () => { stopped = url; }));
  });
  assert.equal((await (await get('part')).arrayBuffer()).byteLength, 3);
  assert.equal((await get('missing')).status, 500);
  await assert.rejects(get('error'), { name: 'TypeError', message: 'no network' });
  const abort = new AbortController();
  const waiting = get('waits', { signal: abort.signal });
  abort.abort();
  await assert.rejects(waiting, { name: 'AbortError' });
  await get('part');
  assert.equal(stopped, 'waits');
  port.close();
});

const SENT = { 'Content-Length': '3', ETag: '"1"' };
const lower = Object.fromEntries(Object.entries(SENT).map(([name, value]) => [name.toLowerCase(), value]));
/** Headers of mocks and polyfills. */
const HEADERS = {
  'of the browser': new Headers(SENT),
  'with get and has alone': { get: (name) => lower[name.toLowerCase()] ?? null, has: (name) => name.toLowerCase() in lower },
  'a Map': new Map(Object.entries(lower)),
  'an object of texts': SENT,
  'pairs': Object.entries(SENT),
};
/** Bodies of mocks and polyfills. */
const BODIES = {
  'a stream': { body: new Blob(['abc']).stream() },
  'arrayBuffer() alone': { arrayBuffer: async () => new TextEncoder().encode('abc').buffer },
  'blob() alone': { blob: async () => new Blob(['abc']) },
  'bytes that no message can carry': { body: { pipe() {} }, arrayBuffer: async () => new TextEncoder().encode('abc').buffer },
};
for (const [kind, response] of [
  ...Object.entries(HEADERS).map(([what, headers]) => [`headers ${what}`, { headers, ...BODIES['arrayBuffer() alone'] }]),
  ...Object.entries(BODIES).map(([what, body]) => [`a body that is ${what}`, { headers: new Headers(SENT), ...body }]),
]) {
  test(`a program's response: ${kind}`, async () => {
    const { port, get } = asked(async () => ({ ok: true, status: 200, type: 'cors', ...response }));
    const found = await get('https://a/');
    assert.deepEqual([found.headers.get('content-length'), found.headers.get('etag'), found.type, await found.text()], ['3', '"1"', 'cors', 'abc']);
    port.close();
  });
}

test('a status that no response can have', async () => {
  const { port, get } = asked(async (url) => ({ ok: url === 'file', status: 0, arrayBuffer: async () => new ArrayBuffer(2) }));
  assert.deepEqual([(await get('file')).status, (await get('other')).status], [200, 500]);
  port.close();
});

test('a broken download resumes through the page', async () => {
  patience.pauses = [0];
  const ranges = [];
  const port = servedFetch(async (_, { headers }) => {
    ranges.push(headers?.range);
    if (headers?.range) return new Response('world', { status: 206, headers: { etag: '"1"', 'content-range': 'bytes 6-10/11' } });
    let sent = false;
    const pull = (stream) => (sent ? stream.error(new Error('cut')) : stream.enqueue(new TextEncoder().encode('hello '), sent = true));
    return new Response(new ReadableStream({ pull }), { headers: { etag: '"1"', 'content-length': '11' } });
  });
  const origin = { url: 'https://a/model.onnx' };
  const end = usePageFetch({ fetchPort: port, model: origin, external: [] });
  const file = await fetchFile(origin, () => {});
  assert.equal(new TextDecoder().decode(file.read(0, file.size)), 'hello world');
  assert.deepEqual(ranges, [undefined, 'bytes=6-']);
  end();
});
