// A file on disk that is read in parts, on demand: reads near the boundaries of one read.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FileOnDisk, lastRun } from '../../web/worker/files/model_file.js';

const NEAR = 2 ** 16, PIECE = 2 ** 22;
const SIZE = 2 * PIECE + 5;
const CONTENT = Uint8Array.from({ length: SIZE }, (_, n) => n % 251);
const made = (reads = []) => new FileOnDisk(SIZE, (into, offset) => {
  reads.push([offset, into.length]);
  assert.ok(offset + into.length <= SIZE);
  into.set(CONTENT.subarray(offset, offset + into.length));
});

for (const size of [0, 1, NEAR - 1, NEAR, NEAR + 1]) {
  for (const offset of [0, 1, NEAR - 1, NEAR, PIECE, SIZE - size]) {
    test(`${size} bytes from ${offset} on`, () => assert.deepEqual(made().read(offset, size), CONTENT.slice(offset, offset + size)));
  }
}

test('small ones near each other are read once, and stay as they were', () => {
  const reads = [];
  const file = made(reads);
  const first = file.read(10, 4);
  file.read(14, 100);
  file.read(10 + NEAR - 8, 8);
  assert.equal(reads.length, 1);
  file.read(10 + NEAR - 8, 9);
  assert.equal(reads.length, 2);
  assert.deepEqual(first, CONTENT.slice(10, 14));
});

for (const size of [0, 1, PIECE - 1, PIECE, PIECE + 1, SIZE]) {
  test(`${size} bytes into shared memory, in pieces`, () => {
    const reads = [];
    const into = new Uint8Array(new SharedArrayBuffer(size));
    made(reads).fill(into, SIZE - size);
    assert.deepEqual(Array.from(into.subarray(-3)), Array.from(CONTENT.subarray(SIZE - size).subarray(-3)));
    assert.ok(into.every((byte, n) => byte === CONTENT[SIZE - size + n]));
    assert.ok(reads.every(([, count]) => count <= PIECE));
  });
}

test('hashes tell files apart, by any byte', async () => {
  const hash = await made().hash();
  assert.equal(await made().hash(), hash);
  const other = new FileOnDisk(SIZE, (into, offset) => {
    into.set(CONTENT.subarray(offset, offset + into.length));
    if (offset + into.length === SIZE) into[into.length - 1] ^= 1;
  });
  assert.notEqual(await other.hash(), hash);
});

test('hashes that have time pause between pieces, until somebody has none', async () => {
  const reads = [];
  const file = made(reads);
  const slow = file.hash(1000);
  await new Promise((done) => setTimeout(done, 50));
  assert.equal(reads.length, 1);
  assert.equal(await file.hash(), await slow);
  assert.equal(reads.length, 3);
  assert.equal(await slow, await made().hash());
});

test('a pause is longer while runs follow each other', async () => {
  const file = made([]);
  file.pause = 10;
  const begin = performance.now();
  lastRun.ended = Infinity;
  await file.rest();
  lastRun.ended = -Infinity;
  assert.ok(performance.now() - begin >= 7 * 10 - 2);
});
