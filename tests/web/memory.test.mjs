// Which parts of memory are free, at the edges of linear memory and of the GPU's buffers.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OutOfMemory } from '../../web/common/errors.js';
import { budgets } from '../../web/run/budgets.js';
import { freeSpare, Memory } from '../../web/run/memory.js';
import { Arena, GPU } from '../../web/runtime/arena.js';

const RESERVED = 1024;

const CHUNK = 1024; // bytes of the GPU's buffers in these tests
const spans = (arena) => arena.free.map(([address, size]) => [address - arena.base, size]);

for (const [size, rounded] of [[0, 64], [1, 64], [64, 64], [65, 128], [128, 128], [129, 192]]) {
  test(`${size} bytes of linear memory take ${rounded}`, () => assert.equal(new Arena(RESERVED).round(size), rounded));
}

for (const [size, rounded] of [[0, 256], [1, 256], [256, 256], [257, 512], [CHUNK, CHUNK]]) {
  test(`${size} bytes of the GPU take ${rounded}`, () => assert.equal(new Arena(GPU, CHUNK).round(size), rounded));
}

test('no tensor is larger than a buffer of the GPU', () => {
  assert.throws(() => new Arena(GPU, CHUNK).alloc(CHUNK + 1), OutOfMemory);
});

/** Takes all the sizes, then gives back those at `released`, in that order. */
function after(arena, sizes, released) {
  const taken = sizes.map((size) => arena.alloc(size));
  for (const i of released) arena.release(taken[i]);
  return arena;
}

for (const [released, free] of [
  [[], []],
  [[1], [[64, 64]]],
  [[0, 1], [[0, 128]]], // joins what is free before
  [[1, 0], [[0, 128]]], // and after
  [[0, 2], [[0, 64]]], // the end moves back
  [[1, 0, 2], []], // over what is free before it
]) {
  test(`given back in the order [${released}]`, () => assert.deepEqual(spans(after(new Arena(RESERVED), [1, 1, 1], released)), free));
}

test('the smallest gap that holds it is taken', () => {
  const arena = after(new Arena(RESERVED), [300, 1, 100, 1], [0, 2]);
  assert.equal(arena.alloc(100).address - arena.base, 384);
  assert.equal(arena.alloc(200).address - arena.base, 0);
  assert.deepEqual(spans(arena), [[256, 64]]);
});

test('what is free at the end grows', () => {
  const arena = after(new Arena(RESERVED), [1, 1], [1]);
  assert.equal(arena.alloc(200).address - arena.base, 64);
  assert.equal(arena.end - arena.base, 64 + 256);
  assert.deepEqual(spans(arena), []);
});

test('no span leaves its buffer of the GPU', () => {
  const arena = after(new Arena(GPU, CHUNK), [768, 512], []);
  assert.deepEqual([spans(arena), arena.end - GPU], [[[768, 256]], CHUNK + 512]);
});

test('free spans of two buffers do not join', () => {
  assert.deepEqual(spans(after(new Arena(GPU, CHUNK), [CHUNK, CHUNK, 1], [0, 1])), [[0, CHUNK], [CHUNK, CHUNK]]);
  assert.deepEqual(spans(after(new Arena(GPU, CHUNK), [CHUNK, CHUNK, 1], [1, 0])), [[0, CHUNK], [CHUNK, CHUNK]]);
});

for (const [sizes, twice] of [[[1, 1], 0], [[1, 1], 1], [[1], 0]]) {
  test(`span ${twice} of ${sizes.length} given back twice`, () => {
    assert.throws(() => after(new Arena(RESERVED), sizes, [twice, twice]), { type: 'MemoryFault', message: /released, but not in use/ });
  });
}

test('a copy goes its own way', () => {
  const arena = after(new Arena(RESERVED), [1, 1], [0]);
  arena.copy().alloc(1);
  assert.deepEqual(spans(arena), [[0, 64]]);
});

for (const [taken, free, end] of [
  [[], [], 0],
  [[[64, 128]], [[0, 64]], 128],
  [[[128, 192], [0, 64]], [[64, 64]], 192], // in any order
]) {
  test(`rebuilt from [${taken.join('; ')}]`, () => {
    const arena = new Arena(RESERVED);
    arena.rebuild(taken.map((span) => span.map((address) => arena.base + address)));
    assert.deepEqual([spans(arena), arena.end - arena.base], [free, end]);
  });
}

test('memory grows by pages and keeps what it holds', () => {
  const memory = Memory.take(false, 3 * 65536);
  memory.bytes[5] = 7;
  memory.ensure(65536 - 64); // kernels may read 64 bytes more
  assert.equal(memory.bytes.length, 65536);
  memory.ensure(65537 - 64);
  assert.deepEqual([memory.bytes.length, memory.bytes[5]], [2 * 65536, 7]);
  assert.throws(() => memory.ensure(3 * 65536 + 1 - 64), { type: 'OutOfMemory', message: /^196609 bytes of memory are needed, memoryLimit is 196608 \(/ });
  memory.limit = Infinity;
  assert.throws(() => memory.ensure(2 ** 32 - 64), { type: 'OutOfMemory', message: /^4294967296 bytes of memory are needed, WebAssembly has 4294901760 \(/ });
});

test("spare memories and new ones stay within the page's limit", (t) => {
  freeSpare();
  const { linear } = budgets;
  const before = linear.used;
  const limited = (pages) => { linear.limit = before + pages * 65536; };
  t.after(() => { linear.limit = Infinity; });
  const large = Memory.take(false);
  large.ensure(9 * 65536);
  large.giveBack(); // a spare one
  limited(8);
  const small = Memory.take(false);
  assert.deepEqual([small === large, linear.used - before], [false, 65536]);
  small.ensure(4 * 65536);
  const kept = Memory.take(false);
  kept.ensure(65536);
  kept.giveBack();
  assert.throws(() => small.ensure(9 * 65536), { type: 'OutOfMemory', message: /env.memoryLimit/ });
  small.ensure(7 * 65536); // all of the limit: no spare memory is left beside it
  assert.deepEqual([linear.used - before, freeSpare()], [8 * 65536, false]);
  assert.throws(() => Memory.take(false), { type: 'OutOfMemory' });
  small.giveBack();
  assert.equal(linear.used, before);
  freeSpare();
});

test('a memory that is taken again is clean, and of the kind asked for', () => {
  const memory = Memory.take(false);
  memory.bytes.fill(1);
  memory.giveBack();
  assert.notEqual(Memory.take(true), memory);
  const again = Memory.take(false);
  assert.equal(again, memory);
  assert.ok(again.bytes.subarray(1024).every((byte) => byte === 0));
});
