// Lists of files, as pages that work offline read them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { expectedFiles } from '../../web/offline/version_files.js';

/** What is expected where the server has these lists. @param {Record<string, unknown>} served */
async function expected(served) {
  const { fetch } = globalThis;
  globalThis.fetch = async (url) => new Response(JSON.stringify(served[url]));
  try {
    const { files } = await expectedFiles({ engine: 'http://a/dist/', lists: ['http://a/site/list.json'], files: [], models: [] }, null, undefined);
    return files.map(({ url }) => url);
  } finally {
    globalThis.fetch = fetch;
  }
}

test('names are paths, whatever they hold', async () => {
  const file = { size: 1, hash: 'h', page: true };
  const urls = await expected({ 'http://a/dist/assets.json': { files: { 'ort.mjs': file } }, 'http://a/site/list.json': { files: { 'in/c#?.js': file } } });
  assert.deepEqual(urls, ['http://a/dist/ort.mjs', 'http://a/site/in/c%23%3F.js']);
});

test('what is no list is told', async () => {
  for (const files of [null, 'a', undefined]) await assert.rejects(expected({ 'http://a/dist/assets.json': { files: {} }, 'http://a/site/list.json': { files } }), { type: 'SessionFailed', message: /not a list/ });
});
