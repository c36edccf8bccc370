// The bytes that a Program depends on: those that the compiler has read.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FileInMemory, PIECE } from '../../web/worker/files/model_file.js';
import { digestOf, ReadRanges } from '../../web/worker/files/read_ranges.js';

const SIZE = PIECE + 100_000;
const CONTENT = Uint8Array.from({ length: SIZE }, (_, n) => n % 251);

/** The digest of two files with changes: [name, offset]. */
function digest(ranges, changes = [], size = SIZE) {
  const contents = new Map(['', 'w'].map((name) => [name, CONTENT.slice(0, size)]));
  for (const [name, at] of changes) contents.get(name)[at] ^= 1;
  const files = new Map([...contents].map(([name, bytes]) => [name, new FileInMemory(bytes)]));
  return digestOf(files, (offset, length, name = '') => files.get(name).read(offset, length), ranges);
}

test('ranges are joined, whatever their order', () => {
  const reads = new ReadRanges();
  const read = reads.recorded((offset, size, name) => `${offset} ${size} ${name}`);
  assert.equal(read(0, 10), '0 10 ');
  for (const [offset, size] of [[10, 5], [900, 100], [14, 2], [5000, 1], [950, 200], [2, 3]]) read(offset, size, '');
  read(7, 1, 'w');
  assert.deepEqual(reads.all(), [['', 0, 16], ['', 900, 1150], ['', 5000, 5001], ['w', 7, 8]]);
});

const RANGES = [['', 10, 20], ['', 5000, PIECE + 9000], ['w', 0, 1]];
for (const [text, changes, differs] of [
  ['a byte that was read', [['', 19]], true], ['the last byte of a range', [['', PIECE + 8999]], true], ['another file', [['w', 0]], true],
  ['bytes that were not read', [['', 9], ['', 20], ['', PIECE + 9000], ['w', 1]], false],
]) {
  test(`the digest ${differs ? 'depends' : 'does not depend'} on ${text}`, async () => {
    assert.equal(await digest(RANGES) !== await digest(RANGES, changes), differs);
  });
}

test('it depends on sizes and ranges', async () => {
  const others = [digest(RANGES, [], SIZE - 1), digest(RANGES.slice(1)), digest([])];
  assert.ok(!(await Promise.all(others)).includes(await digest(RANGES)));
});

test('files in shared memory have none', async () => {
  const files = new Map([['', new FileInMemory(new Uint8Array(new SharedArrayBuffer(8)))]]);
  await assert.rejects(digestOf(files, () => new Uint8Array(), []));
});
