// Lists of files, and files compressed ahead.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { compressAll, writeList } from '../../scripts/list_files.mjs';

test('files are listed with sizes and hashes, and compressed where that helps', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'list-'));
  const text = 'export const answer = 42;\n'.repeat(100);
  await mkdir(join(folder, 'inner'));
  for (const [path, body] of Object.entries({ 'inner/a.mjs': text, 'a.onnx': text, 'short.js': '1' })) await writeFile(join(folder, path), body);
  const page = (path) => path.endsWith('.mjs');
  await writeList(folder, 'list.json', page, (path) => path !== 'short.js');
  const first = await readFile(join(folder, 'list.json'), 'utf8');
  const { build, files } = JSON.parse(first);
  const hash = createHash('sha256').update(text).digest('hex');
  assert.match(build, /^[0-9a-f]{16}$/);
  assert.deepEqual(files, { 'a.onnx': { size: 2600, hash, page: false }, 'inner/a.mjs': { size: 2600, hash, page: true } });

  await compressAll(folder);
  assert.deepEqual((await readdir(join(folder, 'inner'))).sort(), ['a.mjs', 'a.mjs.br', 'a.mjs.gz']);
  assert.equal(String(brotliDecompressSync(await readFile(join(folder, 'inner/a.mjs.br')))), text);
  assert.equal(String(gunzipSync(await readFile(join(folder, 'inner/a.mjs.gz')))), text);
  assert.equal((await readdir(folder)).filter((name) => /onnx\.|short\.js\./.test(name)).length, 0);
  await writeList(folder, 'list.json', page, (path) => path !== 'short.js');
  assert.equal(await readFile(join(folder, 'list.json'), 'utf8'), first); // the same again
  await rm(folder, { recursive: true });
});
