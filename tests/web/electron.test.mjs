// The main process of docs/use/electron.md, with a stand-in for Electron: what its protocol answers.
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';

const STAND_IN = `
  export const told = {};
  export const app = { whenReady: async () => {} };
  export const protocol = { registerSchemesAsPrivileged: (schemes) => { told.schemes = schemes; }, handle: (name, answer) => { told[name] = answer; } };
  export class BrowserWindow { async loadURL(url) { told.url = url; } }`;

/** The main process, started in a folder of its own; answers(url) of its protocol. */
async function start() {
  const folder = mkdtempSync(join(tmpdir(), 'electron-'));
  mkdirSync(join(folder, 'node_modules/electron'), { recursive: true });
  mkdirSync(join(folder, 'page'));
  writeFileSync(join(folder, 'node_modules/electron/index.mjs'), STAND_IN);
  writeFileSync(join(folder, 'node_modules/electron/package.json'), '{ "exports": "./index.mjs" }');
  writeFileSync(join(folder, 'page/index.html'), 'page');
  writeFileSync(join(folder, 'page/a.wasm'), 'code');
  cpSync(new URL('../../e2e/projects/sources/electron/main.mjs', import.meta.url), join(folder, 'main.mjs'));
  await import(pathToFileURL(join(folder, 'main.mjs')));
  const { told } = await import(pathToFileURL(join(folder, 'node_modules/electron/index.mjs')));
  const answers = async (url) => {
    const response = await told.app({ url });
    return [response.status, response.headers.get('Content-Type'), response.headers.get('Cross-Origin-Embedder-Policy'), await response.text()];
  };
  return { told, answers };
}

const { told, answers } = await start();

test('pages of an Electron app are isolated', async () => {
  assert.deepEqual([told.url, told.schemes[0].scheme], ['app://app/', 'app']);
  assert.deepEqual(await answers('app://app/'), [200, 'text/html', 'require-corp', 'page']);
  assert.deepEqual(await answers('app://app/a.wasm?v=1'), [200, 'application/wasm', 'require-corp', 'code']);
});

test('pages of an Electron app get no files from outside of their folder', async () => {
  for (const path of ['nothing', '../main.mjs', '..%2fmain.mjs', '%2e%2e/main.mjs']) assert.equal((await answers(`app://app/${path}`))[0], 404);
});
