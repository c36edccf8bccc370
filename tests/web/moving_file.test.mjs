// A file that the page sends in parts, and that moves from memory to disk while it is read.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LARGE, PIECE } from '../../web/worker/files/model_file.js';
import { MovingFile, receiveParts } from '../../web/worker/files/moving_file.js';
import { PartWriter } from '../../web/worker/files/part_writer.js';

const SIZE = 2 * PIECE + 5;
const CONTENT = Uint8Array.from({ length: SIZE }, (_, n) => n % 251);
const made = () => new MovingFile(SIZE, [0, 1, 2].map((n) => CONTENT.slice(n * PIECE, (n + 1) * PIECE)));

/** A file on a disk with room for so many bytes. */
class Scratch {
  bytes = new Uint8Array();
  removed = 0;
  get size() {
    return this.bytes.length;
  }
  set size(size) {
    this.bytes = this.bytes.subarray(0, size);
  }
  constructor(room = SIZE) {
    this.room = room;
  }
  appendUntilFull(bytes) {
    const taken = Math.min(bytes.length, this.room - this.bytes.length);
    this.bytes = Buffer.concat([this.bytes, bytes.subarray(0, taken)]);
    return bytes.subarray(taken);
  }
  read(into, offset) {
    assert.ok(into.buffer instanceof ArrayBuffer, 'reads into memory that is not shared');
    into.set(this.bytes.subarray(offset, offset + into.length));
  }
  async remove() {
    this.removed++;
  }
}

function check(file) {
  for (const [offset, size] of [[0, 0], [0, 3], [PIECE - 2, 4], [PIECE, PIECE], [PIECE - 1, PIECE + 2], [SIZE - 1, 1], [0, SIZE]]) {
    const into = new Uint8Array(new SharedArrayBuffer(size));
    file.fill(into, offset);
    assert.deepEqual(Buffer.from(into), Buffer.from(CONTENT.subarray(offset, offset + size)));
    assert.deepEqual(Buffer.from(file.read(offset, size)), Buffer.from(CONTENT.subarray(offset, offset + size)));
  }
}

for (const [text, room, left] of [['all', SIZE, 0], ['a part, then the disk is full', PIECE + 1, 2], ['nothing', 7, 3]]) {
  test(`the same bytes before, while and after ${text} of it moves`, async () => {
    const file = made();
    check(file);
    const scratch = new Scratch(room);
    file.rest = async () => check(file);
    await Promise.all([1, 2].map(() => file.moveToDisk(async () => scratch)));
    assert.equal(file.parts.filter(Boolean).length, left);
    check(file);
    assert.equal(scratch.removed, left === 3 ? 1 : 0);
    await file.close();
    assert.equal(scratch.removed, 1);
  });
}

test('a file that is closed before or while it moves leaves nothing', async () => {
  for (const when of ['before', 'while']) {
    const [file, scratch] = [made(), new Scratch()];
    file.rest = () => file.close();
    await file.moveToDisk(async () => {
      if (when === 'before') await file.close();
      return scratch;
    });
    assert.equal(scratch.removed, 1);
  }
});

/** The page's port, which sends parts of these bytes. */
function serve(bytes, changed = (part) => part) {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data: { from, to } }) => port1.postMessage(changed(bytes.slice(from, to), from));
  return { port: port2, size: bytes.length };
}

for (const size of [1, PIECE, PIECE + 1, SIZE, 6 * PIECE]) {
  test(`${size} bytes from a page`, async () => {
    const bytes = Uint8Array.from({ length: size }, (_, n) => n % 249);
    const file = await receiveParts(serve(bytes));
    assert.deepEqual(Buffer.from(file.read(0, size)), Buffer.from(bytes));
  });
}

test('bytes that are detached meanwhile are refused, and a stop ends the transfer', async () => {
  await assert.rejects(receiveParts(serve(CONTENT, (part, from) => (from ? new Uint8Array() : part))), { name: 'InvalidModel', message: /detached/ });
  const abort = new AbortController();
  const { port, size } = serve(CONTENT);
  const received = receiveParts({ port, size }, abort.signal);
  abort.abort();
  await assert.rejects(received);
});

const ALL = LARGE + 2 * PIECE + 3;
// memory: parts in memory, null: of a file of another kind; removed: whether the file leaves the disk at once
for (const [text, size, room, isSlow, memory, removed] of [
  ['that is empty', 0, ALL, false, null, 1], ['that is small', PIECE + 1, ALL, false, null, 1], ['of one part', PIECE, ALL, false, null, 1], ['that is small, on a full disk', PIECE + 1, 5, false, null, 1],
  ['that is large', ALL, ALL, false, 0, 0], ['on a slow disk', ALL, ALL, true, 3, 0], ['of whole parts', LARGE + PIECE, ALL, true, 1, 0],
  ['on a disk that fills up', ALL, 2 * PIECE + 1, false, 9, 0], ['on a full disk', ALL, 5, false, 11, 1],
]) {
  test(`a file ${text}, as it arrives`, async () => {
    const bytes = Buffer.alloc(size, CONTENT.subarray(0, 251));
    const scratch = new Scratch(room);
    const writer = new PartWriter(scratch, size);
    Object.assign(writer, { isOpen: true, start: -1e12, writing: isSlow ? 1e13 : 0 });
    for (let at = 0; at < size; at += 1_000_003) writer.take(bytes.subarray(at, at + 1_000_003));
    const file = await writer.end();
    assert.deepEqual([file.size, scratch.removed], [size, removed]);
    assert.equal(file.parts?.filter(Boolean).length ?? null, memory);
    assert.ok(bytes.equals(file.read(0, size)));
    if (memory === null) return;
    file.rest = async () => {};
    scratch.room = ALL; // there is room again
    await file.moveToDisk(async () => new Scratch()); // with room for two parts
    assert.ok(bytes.equals(file.read(0, size)));
    assert.equal(file.parts.filter(Boolean).length, removed ? 9 : 0);
  });
}
