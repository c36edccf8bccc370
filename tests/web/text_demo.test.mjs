// The demo that writes text: its pieces, and what it chooses.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { choose } from '../../demo/text/choice.js';
import { Pieces } from '../../demo/text/pieces.js';

const pieces = new Pieces({ names: [...'abc \n', 'ab', ' a', 'abc', ' ab'], merges: [['a', 'b'], [' ', 'a'], ['ab', 'c'], [' ', 'ab']] });
const spelt = (text) => pieces.encode(text).map((n) => pieces.names[n]);

test('pairs are merged in their order, within words', () => {
  assert.deepEqual(spelt('abc ab\nba a'), ['abc', ' ab', '\n', 'b', 'a', ' a']);
  assert.deepEqual(spelt('aabab'), ['a', 'ab', 'ab']);
  assert.deepEqual(spelt('  b'), [' ', ' ', 'b']);
  assert.deepEqual(spelt(''), []);
});

test('characters that are not known are left out', () => assert.deepEqual(spelt('axb€c'), ['abc']));

const logits = [0, 3, 1, 2].map((x) => Math.log(x + 1)); // shares 0.1, 0.4, 0.2, 0.3
const all = (how) => [0, 0.05, 0.35, 0.45, 0.65, 0.75, 0.85, 0.95, 0.9999].map((random) => choose(logits, how, () => random));

test('no temperature: the likeliest', () => assert.deepEqual(new Set(all({ temperature: 0, topK: 0, topP: 1 })), new Set([1])));

test('shares of the likeliest', () => {
  assert.deepEqual(all({ temperature: 1, topK: 0, topP: 1 }), [1, 1, 1, 3, 3, 2, 2, 0, 0]);
  assert.deepEqual(all({ temperature: 1, topK: 2, topP: 1 }), [1, 1, 1, 1, 3, 3, 3, 3, 3]);
  assert.deepEqual(all({ temperature: 1, topK: 0, topP: 0.75 }), [1, 1, 1, 3, 3, 3, 2, 2, 2]);
  assert.deepEqual(new Set(all({ temperature: 1, topK: 0, topP: 0.05 })), new Set([1]));
  assert.deepEqual(new Set(all({ temperature: 0.01, topK: 0, topP: 1 })), new Set([1]));
});

test('many draws have the shares', () => {
  const counts = [0, 0, 0, 0];
  for (let n = 0; n < 1000; n++) counts[choose(logits, { temperature: 1, topK: 0, topP: 1 }, () => (n + 0.5) / 1000)]++;
  assert.deepEqual(counts, [100, 400, 200, 300]);
});
