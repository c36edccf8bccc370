import assert from 'node:assert/strict';
import { test } from 'node:test';
import { differingDims, withUnknownDims } from '../../web/common/dim_names.js';

const inputs = [
  { name: 'a', dtype: 'float32', shape: ['n', 3, null] }, { name: 'b', dtype: 'float32', shape: ['n', 'm', 'm'] },
  { name: 'c', dtype: 'float32', shape: null }, { name: 's', dtype: 'float32', shape: ['n'], sequence: true },
];
const feed = (...dims) => ({ dims });

test('names of dims whose sizes differ, with the inputs', () => {
  const equal = { a: feed(2, 3, 4), b: feed(2, 5, 5), c: feed(9), s: [feed(1), feed(2)] };
  assert.deepEqual([...differingDims(inputs, equal)], []);
  assert.deepEqual([...differingDims(inputs, { ...equal, b: feed(4, 5, 6) })], [['n', ['a', 'b']], ['m', ['b', 'b']]]);
  assert.deepEqual([...differingDims(inputs, { a: feed(2, 3, 4), b: null })], []);
});

test('dims apart are unknown ones', () => {
  const apart = withUnknownDims(inputs, new Map([['n', []]]));
  assert.deepEqual(apart.map(({ shape }) => shape), [[null, 3, null], [null, 'm', 'm'], null, [null]]);
});
