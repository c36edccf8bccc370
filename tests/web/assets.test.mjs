// Where the engine's files are, given the settings that programs make for onnxruntime-web.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';

import { platform } from '../../web/common/platform.js';
import { assetUrls, ownUrls } from '../../web/page/engine/assets.js';

const { exists, address } = platform;
const { warn } = console;
let asked = [];
let told = [];

beforeEach(() => {
  asked = [];
  told = [];
  platform.exists = async (url) => asked.push(url) > 0 && url.includes('here');
  platform.address = (text) => new URL(text, 'https://page.example/').href;
  console.warn = (text) => told.push(text);
});
afterEach(() => Object.assign(platform, { exists, address }) && Object.assign(console, { warn }));

for (const folder of ['/here', '/here/', 'https://cdn.example/npm/pyruntime@0.1.0/dist/here/', 'https://me@1.example/here/', '/@2026/here/', '/gh/me/site@1.2.0/here/', '/npm/my-app@2.0.0/node_modules/pyruntime@0.1.0/here/']) {
  test(`files in ${folder}`, async () => {
    const found = await assetUrls(folder);
    assert.equal(found.worker, asked[0]);
    assert.match(found.engine, /here\/engine\.zip$/);
    assert.deepEqual(told, []);
  });
}

test('a folder without them', async () => {
  assert.deepEqual(await assetUrls('/models/'), ownUrls());
  assert.deepEqual([asked.length, told.length], [1, 1]);
});

for (const address of [
  'https://cdn.jsdelivr.net/npm/@huggingface/transformers@3.3.3/dist/', 'https://unpkg.com/onnxruntime-web@1.30.0/dist/',
  '/vendor/onnxruntime-web@1.30.0/here',
]) {
  test(`another package: ${address}`, async () => {
    assert.deepEqual(await assetUrls(address), ownUrls());
    assert.deepEqual([asked.length, told.length], [0, 1]);
  });
}
