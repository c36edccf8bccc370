// Range requests to servers that answer wrongly: rejected, and never mistaken for other bytes.

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { openPartialFile } from '../../web/worker/files/partial_file.js';

const SIZE = 1 << 14, { fetch } = globalThis;

afterEach(() => { globalThis.fetch = fetch; });

/** Reads two parts of a file. @param {(start: number, last: number) => object} headers of a part @param {ResponseInit} head */
async function read(headers, head = { headers: { 'content-length': String(SIZE) } }) {
  globalThis.fetch = async (_, { method, headers: sent }) => {
    if (method === 'HEAD') return new Response(null, head);
    const [start, last] = sent.range.match(/\d+/g).map(Number);
    return new Response(new Uint8Array(last - start + 1), { status: 206, headers: headers(start, last) });
  };
  const parts = await openPartialFile({ url: 'https://models/m.onnx' });
  await parts.get(SIZE / 2, 1);
  return parts.size;
}

const told = (start, last) => ({ 'content-range': `bytes ${start}-${last}/${SIZE}` });
const hidden = () => ({});

test('HEAD asks for a range, which no server compresses', async () => {
  const whole = { headers: { 'content-length': String(SIZE) } };
  globalThis.fetch = async (_, { method, headers: { range } }) => {
    if (method === 'HEAD') return new Response(null, range === 'bytes=0-' ? whole : { headers: { 'content-length': '243' } }); // of the compressed file
    return new Response(new Uint8Array(4096), { status: 206 });
  };
  assert.equal((await openPartialFile({ url: 'https://models/m.onnx' })).size, SIZE);
});

test('the size is told by a part, or by HEAD', async () => {
  assert.deepEqual([await read(told), await read(hidden)], [SIZE, SIZE]);
});

for (const [what, head] of Object.entries({
  'refuses HEAD, with a page': { status: 403, headers: { 'content-length': '243' } },
  'knows no HEAD': { status: 405 },
  'tells no length': {},
  'tells the length of what is compressed': { headers: { 'content-length': '243', 'content-encoding': 'gzip' } },
})) {
  test(`a server that hides the range and ${what}`, () => assert.rejects(read(hidden, head), { type: 'InvalidModel', message: /does not report the file's size/ }));
}

test('a part from elsewhere', () => assert.rejects(read((start, last) => told(start && start + 1, last)), { type: 'InvalidModel', message: /a range that was not requested/ }));

for (const name of ['etag', 'last-modified']) {
  const versions = (of) => (start, last) => ({ ...told(start, last), ...of(start) });
  test(`a file of the same size that has changed, by ${name}`, async () => {
    await assert.rejects(read(versions((start) => ({ [name]: `version ${start}` }))), { type: 'InvalidModel', message: /has changed/ });
    assert.equal(await read(versions((start) => (start ? {} : { [name]: 'told once' }))), SIZE);
    assert.equal(await read(versions(() => ({ [name]: 'the same' }))), SIZE);
  });
}

test('a part that breaks off is asked for once more', async () => {
  let breaks = 1;
  const breaking = () => new ReadableStream({ pull: (stream) => (breaks-- > 0 ? stream.error(new TypeError('torn')) : stream.close()) });
  globalThis.fetch = async () => new Response(breaking(), { status: 206, headers: told(0, -1) });
  assert.equal((await openPartialFile({ url: 'https://models/m.onnx' })).size, SIZE);
  breaks = 2;
  await assert.rejects(openPartialFile({ url: 'https://models/m.onnx' }), { type: 'InvalidModel', detail: 'cannot fetch https://models/m.onnx: torn' });
});
