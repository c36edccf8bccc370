// Downloads in pieces, whatever length the server announces, and the errors of interrupted downloads.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { InvalidModel } from '../../web/common/errors.js';
import { fetchFile } from '../../web/worker/files/download.js';
import { patience } from '../../web/worker/files/resumable_fetch.js';

Object.assign(patience, { silence: 90, pauses: [0, 1, 2] });

const URL_OF = 'https://host/a.onnx';

/** A server that sends pieces of these sizes, filled with 1, 2, …, and then breaks off where `fault` says why. */
function serve(pieces, { headers = {}, fault = '', status = 200 }) {
  const queue = pieces.map((size, i) => new Uint8Array(size).fill(i + 1));
  const pull = (stream) => {
    if (queue.length) stream.enqueue(queue.shift());
    else if (fault) stream.error(new TypeError(fault));
    else stream.close();
  };
  globalThis.fetch = async () => new Response(new ReadableStream({ pull }), { headers, status });
}

async function fetched() {
  const told = [];
  const { bytes } = await fetchFile({ url: URL_OF }, (...counts) => told.push(counts));
  return { bytes: [...bytes], told };
}

for (const pieces of [[], [6], [1, 2, 3]]) {
  const size = pieces.reduce((sum, piece) => sum + piece, 0);
  for (const announced of [null, 0, 5, 6, 7]) {
    test(`pieces [${pieces}], announced as ${announced}`, async () => {
      serve(pieces, { headers: announced === null ? {} : { 'content-length': String(announced) } });
      const { bytes, told } = await fetched();
      assert.deepEqual(bytes, pieces.flatMap((count, i) => Array(count).fill(i + 1)));
      assert.deepEqual(told.at(-1), [size, size]);
    });
  }
}

test('the announced length of compressed data says nothing of what comes out', async () => {
  serve([1, 2, 3], { headers: { 'content-length': '2', 'content-encoding': 'gzip' } });
  const { told } = await fetched();
  assert.deepEqual(told, [[1, 0], [6, 6]]);
});

for (const [fault, status, text] of [['cut off', 200, 'cut off'], ['', 503, 'HTTP 503'], ['', 404, 'HTTP 404']]) {
  test(`a fault names the address: ${text}`, async () => {
    serve([1, 2], { headers: { 'content-length': '9' }, fault, status });
    await assert.rejects(fetched(), (error) => error instanceof InvalidModel && error.message.includes(URL_OF) && error.message.includes(text));
  });
}

test('a server that cannot be reached', async () => {
  globalThis.fetch = async () => { throw new TypeError('no connection'); };
  await assert.rejects(fetched(), { type: 'InvalidModel', detail: `cannot fetch ${URL_OF}: no connection` });
});

test('what is wanted no more is not fetched on', async () => {
  globalThis.fetch = async (_, { signal }) => { signal.throwIfAborted(); };
  await assert.rejects(fetchFile({ url: URL_OF }, () => {}, AbortSignal.abort(new Error('no longer'))), /a\.onnx: no longer/);
});

test('bytes and blobs are taken as they are', async () => {
  const bytes = Uint8Array.of(1, 2, 3);
  assert.equal((await fetchFile({ bytes }, () => {})).bytes, bytes);
  assert.deepEqual((await fetchFile({ blob: new Blob([bytes]) }, () => {})).bytes, bytes);
});

test('a stream is read as it comes', async () => {
  const told = [];
  const stream = () => new Blob(['abc']).stream();
  assert.deepEqual((await fetchFile({ stream: stream() }, (...counts) => told.push(counts))).bytes, new TextEncoder().encode('abc'));
  assert.deepEqual(told.at(-1), [3, 3]);
  const broken = new ReadableStream({ pull: (to) => to.error(new Error('torn')) });
  await assert.rejects(fetchFile({ stream: broken }, () => {}), { type: 'InvalidModel', detail: 'cannot read the stream: torn' });
});

test('a response of another origin may hide that it is compressed: no report has more bytes than the total', async () => {
  serve([1, 2, 3], { headers: { 'content-length': '2' } });
  const { bytes, told } = await fetched();
  assert.equal(bytes.length, 6);
  assert.ok(told.every(([loaded, total]) => !total || loaded <= total), JSON.stringify(told));
  assert.deepEqual(told.at(-1), [6, 6]);
});

const FILE = Uint8Array.from({ length: 100 }, (_, i) => i);
const V1 = { etag: '"1"', 'content-length': '100' };
const parts = (/** @type {object} */ more = {}) => ({ ranges: true, headers: V1, ...more });
/** A file of another origin, which hides that the whole of it is compressed; a part is not. */
const hidden = (/** @type {object} */ headers, /** @type {object} */ more = {}) => ({ ranges: true, type: 'cors', headers: { 'content-length': '30', ...headers }, ...more });
const DATE = { 'last-modified': 'Monday' };
/**
 * What a server does at each request, and what is asked for of it; or the error. cut: bytes after which the connection breaks;
 * stall: after which nothing comes; whole: the file is sent from its beginning though a part was asked for.
 */
const FALTERING = {
  'goes on behind what came': [[{ ...parts(), cut: 40 }, { ...parts(), cut: 20 }, parts()], ['', 'bytes=40-', 'bytes=60-']],
  'goes on after a silence': [[{ ...parts(), stall: 40 }, parts()], ['', 'bytes=40-']],
  'known by its date': [[{ headers: { 'last-modified': 'Monday' }, cut: 7 }, { ranges: true, headers: { 'last-modified': 'Monday' } }], ['', 'bytes=7-']],
  'tells no version: from the beginning': [[{ headers: {}, cut: 40 }, { headers: {} }], ['', '']],
  'compresses: from the beginning': [[{ headers: { ...V1, 'content-encoding': 'gzip' }, cut: 40 }, { headers: V1 }], ['', '']],
  'hides that it compresses': [[hidden(DATE, { cut: 40 }), hidden(DATE)], ['', 'bytes=40-']],
  'hides that it compresses, before so much came': [[hidden(DATE, { cut: 20 }), hidden(DATE)], ['', 'bytes=20-']],
  'hides that it compresses, with a tag for each form: from the beginning': [[hidden({ etag: 'W/"1"' }, { cut: 40 }), hidden({ etag: '"1"' }), hidden({ etag: 'W/"1"' })], ['', 'bytes=40-', '']],
  'hides that it compresses, and has another file: from the beginning': [[hidden(DATE, { cut: 40 }), hidden({ 'last-modified': 'Friday' }), hidden({ 'last-modified': 'Friday' })], ['', 'bytes=40-', '']],
  'sends no parts: from the beginning': [[{ headers: V1, cut: 40 }, { headers: V1 }, { headers: V1 }], ['', 'bytes=40-', '']],
  'sends another part: from the beginning': [[{ ...parts(), cut: 40 }, parts({ shift: 1 }), parts()], ['', 'bytes=40-', '']],
  'is busy': [[{ status: 503, headers: { 'retry-after': '0' } }, { status: 429, headers: {} }, parts()], ['', '', '']],
  'is busy when it goes on': [[{ ...parts(), cut: 40 }, { status: 502, headers: {} }, parts()], ['', 'bytes=40-', 'bytes=40-']],
  'is not reached when it goes on': [[{ ...parts(), cut: 40 }, { error: 'offline' }, parts()], ['', 'bytes=40-', 'bytes=40-']],
  'always breaks': [[{ ...parts(), cut: 40 }, ...Array(9).fill({ ...parts(), cut: 0 })], /after 40 bytes/],
  'never begins': [[{ stall: -1 }], /no bytes arrived for 0.09 s/],
  'has another file': [[{ ...parts(), cut: 40 }, parts({ headers: { ...V1, etag: '"2"' } })], /has changed while it was fetched/],
  'has another file, and sends no parts': [[{ ...parts(), cut: 40 }, { headers: { ...V1, etag: '"2"' } }], /has changed while it was fetched/],
  'has a shorter file': [[{ ...parts(), cut: 40 }, { status: 416, headers: V1 }], /has changed while it was fetched/],
  'has a longer file': [[{ ...parts({ headers: { ...V1, 'content-length': '90' } }), cut: 40 }, parts()], /has changed while it was fetched/],
  'lost it': [[{ ...parts(), cut: 40 }, { status: 404, headers: {} }], /HTTP 404.*check the address/],
  'stays busy': [Array(9).fill({ status: 503, headers: {} }), /HTTP 503.*try again later/],
  'wants an hour': [[{ status: 429, headers: { 'retry-after': '3600' } }], /HTTP 429.*try again later/],
};

/** @param {any} does @param {string} range */
function answer({ headers, type = 'default', status = 200, ranges, cut = Infinity, stall = Infinity, shift = 0, error }, range) {
  if (error) throw new TypeError(error);
  if (stall < 0) return new Promise(() => {});
  if (status !== 200) return new Response(null, { status, headers });
  const start = ranges && range ? Number(range.match(/\d+/)) : 0;
  const left = FILE.slice(start, start + Math.min(cut, stall));
  const told = start ? { ...headers, 'content-range': `bytes ${start + shift}-99/100` } : headers;
  let sent = false;
  const pull = (/** @type {any} */ stream) => {
    if (!sent && left.length) stream.enqueue(left);
    else if (cut < FILE.length) stream.error(new TypeError('network error'));
    else if (stall < FILE.length) return new Promise(() => {});
    else stream.close();
    sent = true;
  };
  const response = new Response(new ReadableStream({ pull }, { highWaterMark: 0 }), { status: start ? 206 : 200, headers: told });
  return Object.defineProperty(response, 'type', { value: type });
}

for (const [what, [does, expected]] of Object.entries(FALTERING)) {
  test(`a server that falters: ${what}`, async () => {
    const asked = [];
    globalThis.fetch = async (_, { headers } = {}) => answer(does[asked.push(headers?.range ?? '') - 1], asked.at(-1));
    if (expected instanceof RegExp) return assert.rejects(fetched(), (error) => error instanceof InvalidModel && expected.test(error.message) && error.message.includes(URL_OF));
    const { bytes, told } = await fetched();
    assert.deepEqual(bytes, [...FILE]);
    assert.deepEqual(asked, expected);
    assert.deepEqual(told.at(-1), [100, 100]);
  });
}
