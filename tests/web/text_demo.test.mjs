// The demo that writes text: its pieces.

import assert from 'node:assert/strict';
import { test } from 'node:test';
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
