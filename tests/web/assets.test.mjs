// Where the engine's files are, given the settings that programs make for onnxruntime-web.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';

import { platform } from '../../web/common/platform.js';
import { assetUrls, ownUrls } from '../../web/page/engine/assets.js';

const { exists, address } = platform;
const { fetch, location, origin } = globalThis;
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
afterEach(() => {
  Object.assign(platform, { exists, address });
  Object.assign(console, { warn });
  Object.assign(globalThis, { fetch, location, origin });
});

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
  '/vendor/onnxruntime-web@1.30.0/here', 'https://cdn.jsdelivr.net/npm/onnxruntime-web/dist/', 'https://unpkg.com/onnxruntime-web@latest/dist/',
  'https://cdnjs.cloudflare.com/ajax/libs/onnxruntime-web/1.20.0/', 'https://cdn.jsdelivr.net/npm/@xenova/transformers/dist/',
]) {
  test(`another package: ${address}`, async () => {
    assert.deepEqual(await assetUrls(address), ownUrls());
    assert.deepEqual([asked.length, told.length], [0, 1]);
  });
}

// ── what bundlers insert for new URL('./worker.mjs', import.meta.url).href ──

const module = { [Symbol.toStringTag]: 'Module' };
const HTTP = 'https://page.example';
const DATA = 'data:text/javascript;base64,MQ==';

/** In a place: what is inserted, and the address that the engine uses. */
for (const [where, inserted, expected] of [
  [`${HTTP}/deep/route`, `${HTTP}/assets/worker-1.mjs`, `${HTTP}/assets/worker-1.mjs`],
  [`${HTTP}/deep/route`, 'https://cdn.example/worker.mjs', 'https://cdn.example/worker.mjs'],
  [`${HTTP}/deep/route`, '/_next/static/media/worker.1.mjs', `${HTTP}/_next/static/media/worker.1.mjs`], // Next.js
  [`${HTTP}/deep/route`, 'out/worker.mjs', `${HTTP}/deep/out/worker.mjs`],
  [`blob:${HTTP}/id`, '/_next/static/media/worker.1.mjs', `${HTTP}/_next/static/media/worker.1.mjs`], // in a worker of Turbopack
  [`${HTTP}/`, `${HTTP}/base/node_modules/.vite/deps/worker.mjs`, `${HTTP}/base/node_modules/pyruntime/dist/worker.mjs`], // Vite 7
  [`${HTTP}/`, DATA, DATA],
  [`${HTTP}/`, `${HTTP}/[object%20Module]`, `${HTTP}/worker.1.bin`], // a rule of the project for webpack compiles .mjs files
  [`${HTTP}/`, module, `${HTTP}/worker.1.bin`],
  [`${HTTP}/`, null, `${HTTP}/worker.1.bin`], // the rule, and relative addresses: webpack's class throws
]) {
  test(`${where} inserts ${String(inserted)}`, () => {
    Object.assign(platform, { address });
    Object.assign(globalThis, { location: { href: where }, origin: HTTP });
    const { worker, wasm } = ownUrls({ scripts: () => ({ worker: inserted ?? assert.fail() }), copies: () => ({ worker: '/worker.1.bin' }), others: () => ({ wasm: '/x.wasm' }) });
    assert.deepEqual([worker, wasm], [expected, `${HTTP}/x.wasm`]);
  });
}

test('files that a bundler compiles and that have no copies are named', () => {
  const built = { scripts: () => ({}), others: () => ({ wasm: module }) };
  assert.throws(() => ownUrls(built), { name: 'InvalidInput', message: /compiled pyodide\.asm\.wasm instead of copying it \(exclude/ });
});

test('bundles that do not know their address', () => {
  const unknown = () => ({ worker: new URL('./worker.mjs', undefined).href });
  assert.throws(() => ownUrls({ scripts: unknown, copies: unknown, others: unknown }), { name: 'InvalidInput', message: /wasmPaths must name the engine's folder/ });
});

for (const [answers, expected] of [
  [{ HEAD: [200, 'text/javascript'] }, true],
  [{ HEAD: [404, 'text/html'] }, false],
  [{ HEAD: [200, 'text/html; charset=utf-8'] }, false], // single-page hosts answer index.html
  [{ HEAD: [405, 'text/html'], GET: [200, 'text/javascript'] }, true],
  [{ HEAD: [405, 'text/html'], GET: [200, 'text/html'] }, false],
  [{ HEAD: [403, 'application/xml'], GET: [403, 'application/xml'] }, false],
  [{}, false], // no server
]) {
  test(`a server that answers ${JSON.stringify(answers)}`, async () => {
    globalThis.fetch = async (_, { method }) => {
      const [status, type] = answers[method] ?? assert.fail(method);
      return new Response('', { status, headers: { 'content-type': type } });
    };
    assert.equal(await exists(`${HTTP}/worker.mjs`), expected);
  });
}

test('an address that is not valid is named', () => {
  globalThis.location = { href: `blob:${HTTP}/id` };
  assert.throws(() => address('/m/add.onnx'), { name: 'InvalidInput', message: /"\/m\/add\.onnx" is not a valid address \(.*blob:/ });
});
