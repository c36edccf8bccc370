// Dispatches of a call that has one for each range of steps, and their parameter blocks.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LayoutBindings } from '../../web/gpu/bindings.js';
import { Prepared } from '../../web/gpu/prepared.js';

test('each range has a dispatch, whose block has its number', () => {
  const calls = [
    { node: 'a', kernel: '0', buffers: [1], params: [], work: 0, inplace: [] },
    { node: 'b', kernel: '1', buffers: [1, 2], params: [0, 0], work: 0, inplace: [] },
    { node: 'c', kernel: '0', buffers: [2], params: [], work: 0, inplace: [] },
  ];
  const words = [100, 7, 100, 200, 9, 3, 5, 200, 8]; // addresses, parameters and work of each call; b has three ranges
  const bindings = new LayoutBindings(calls, [[4], [4, 4], [4]], words);
  const step = new Prepared(bindings, words, ({ kernel }, work) => ({ count: [work, 1], ranges: kernel === '1' ? 1 : -1 }));
  assert.deepEqual(step.numbers, [0, 1, 1, 1, 2]);
  assert.deepEqual(step.counts, [7, 1, 5, 1, 5, 1, 5, 1, 8, 1]);
  assert.deepEqual(step.starts, [0, 256, 768, 1024, 512]);
  assert.equal(step.size, 5 * 256);
  const blocks = step.blocks();
  assert.deepEqual(step.starts.map((at) => [...blocks.subarray(at / 4, at / 4 + 3)]), [[7, 0, 0], [9, 0, 5], [9, 1, 5], [9, 2, 5], [8, 0, 0]]);
  assert.equal(blocks.length, 5 * 64);
});

test('a loop without steps has no dispatch', () => {
  const call = { node: 'a', kernel: '0', buffers: [1], params: [0], work: 0, inplace: [] };
  const words = [100, 0, 6]; // an address, no range, and work
  const step = new Prepared(new LayoutBindings([call], [[4]], words), words, () => ({ count: [6, 1], ranges: 0 }));
  assert.deepEqual([step.numbers, step.counts, step.starts], [[], [], []]);
  assert.deepEqual([...step.blocks().subarray(0, 2)], [0, 6]);
});
