// Dims of a Program, and those of feeds that must fit them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { evaluate, evaluateAll, symbols } from '../../web/common/dims.js';
import { bindDims, checkDims, feedOf } from '../../web/run/input_dims.js';
import { refusal } from './sentences.mjs';

const ENV = new Map([['N', 7], ['K', -3], ['zero', 0]]);

for (const [dim, value] of [
  [5, 5],
  ['N', 7],
  [['+', 'N', 1, 'K'], 5],
  [['+'], 0],
  [['*', 'N', 'K'], -21],
  [['*'], 1],
  [['floordiv', 'N', 2], 3],
  [['floordiv', 'K', 2], -2], // towards minus infinity, as in Python
  [['floordiv', 'N', 'zero'], 0],
  [['max', 'N', 'K'], 7],
  [['min', 'N', 'K'], -3],
  [['lt', 'N', 7], 0],
  [['le', 'N', 7], 1],
  [['eq', 'N', 7], 1],
  [['select', ['lt', 'K', 0], 'N', 'K'], 7],
  [['select', 'zero', 'N', ['*', 2, 'K']], -6],
]) {
  test(`${JSON.stringify(dim)} is ${value}`, () => assert.equal(evaluate(dim, ENV), value));
}

test('a symbol without a value', () => {
  assert.throws(() => evaluateAll([1, ['+', 'M', 1]], ENV), /the symbol "M" has no value/);
});

test('symbols of a dim, and none that an operation is called by', () => {
  assert.deepEqual(symbols(['max', ['+', 'N', 'N', 1], 'max']), new Set(['N', 'max']));
  assert.deepEqual(symbols(4), new Set());
});

const A = { type: 'float32', dims: [2], data: new Float32Array(2) };

for (const [told, feeds, input, found] of [
  ['of a tensor', { x: A }, { name: 'x' }, A],
  ['of an item', { x: [null, A] }, { name: 'x', item: 1 }, A],
  ['of an item that is not there', { x: [A] }, { name: 'x', item: 3 }, undefined],
  ['of an absent optional', { x: null }, { name: 'x' }, undefined],
  ['of none', {}, { name: 'x' }, undefined],
  ['of a name that every object has', {}, { name: 'toString' }, undefined],
]) {
  test(`the feed ${told}`, () => assert.equal(feedOf(feeds, input), found));
}

/** What an input of dims says of the dims that are fed; the symbols' values, if nothing. */
function fed(dims, given, env = new Map()) {
  bindDims('x', dims, given, env);
  checkDims('x', dims, given, env, { 'N.0': 'N' });
  return Object.fromEntries(env);
}

test('symbols take the values of feeds', () => {
  assert.deepEqual(fed(['N.0', 3, ['*', 2, 'N.0'], 'M'], [4, 3, 8, 0]), { 'N.0': 4, M: 0 });
});

for (const [dims, given, message] of [
  [['N.0'], undefined, 'input "x" is missing'],
  [['N.0'], [], 'input "x" must have rank 1, it has rank 0 []'],
  [[], [1], 'input "x" must have rank 0, it has rank 1 [1]'],
  [[3, 2], [3, 4], 'input "x" is [3, 4]: index: 1 Got: 4 Expected: 2'],
  [['N.0', 'N.0'], [3, 4], 'input "x" is [3, 4]: index: 1 Got: 4 Expected: 3, as "N" is elsewhere'],
  [['M', ['+', 'M', 1]], [3, 3], 'input "x" is [3, 3]: index: 1 Got: 3 Expected: 4'],
]) {
  test(message, () => assert.throws(() => fed(dims, given), refusal('InvalidInput', message)));
}
