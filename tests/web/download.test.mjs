// Bytes in pieces, whatever length the server announces, and what a broken download says.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { InvalidModel } from '../../web/common/errors.js';
import { fetchFile } from '../../web/worker/download.js';

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
  await assert.rejects(fetched(), { type: 'InvalidModel', message: `cannot fetch ${URL_OF}: no connection` });
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
