// Lists of files, and files compressed in advance.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { compressAll, writeList } from '../../scripts/list_files.mjs';

const text = 'export const answer = 42;\n'.repeat(100);
const page = (path) => path.endsWith('.mjs');
const listed = (path) => path !== 'short.js';

/** A folder with a module, a model and a file too short to compress. */
async function made() {
  const folder = await mkdtemp(join(tmpdir(), 'list-'));
  await mkdir(join(folder, 'inner'));
  for (const [path, body] of Object.entries({ 'inner/a.mjs': text, 'a.onnx': text, 'short.js': '1' })) await writeFile(join(folder, path), body);
  return folder;
}

test('files are listed with sizes and hashes', async () => {
  const folder = await made();
  await writeList(folder, 'list.json', page, listed);
  const { build, files } = JSON.parse(await readFile(join(folder, 'list.json'), 'utf8'));
  const hash = createHash('sha256').update(text).digest('hex');
  assert.match(build, /^[0-9a-f]{16}$/);
  assert.deepEqual(files, { 'a.onnx': { size: 2600, hash, page: false }, 'inner/a.mjs': { size: 2600, hash, page: true } });
  await rm(folder, { recursive: true });
});

test('files are compressed beside themselves where that helps, and the list stays', async () => {
  const folder = await made();
  await writeList(folder, 'list.json', page, listed);
  const first = await readFile(join(folder, 'list.json'), 'utf8');
  await compressAll(folder);
  assert.deepEqual((await readdir(join(folder, 'inner'))).sort(), ['a.mjs', 'a.mjs.br', 'a.mjs.gz']);
  assert.equal(String(brotliDecompressSync(await readFile(join(folder, 'inner/a.mjs.br')))), text);
  assert.equal(String(gunzipSync(await readFile(join(folder, 'inner/a.mjs.gz')))), text);
  assert.equal((await readdir(folder)).filter((name) => /onnx\.|short\.js\./.test(name)).length, 0);
  await writeList(folder, 'list.json', page, listed);
  assert.equal(await readFile(join(folder, 'list.json'), 'utf8'), first); // the same again
  await rm(folder, { recursive: true });
});
