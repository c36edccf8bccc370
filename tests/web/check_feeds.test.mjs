// Feeds in the page: what is rejected before anything is sent, what is copied, and what a Program depends on.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Tensor } from 'onnxruntime-common';
import { describeFeed, programKey } from '../../web/common/flat_feeds.js';
import { checkFeeds, checkFetches } from '../../web/page/tensors/check_feeds.js';
import { Packer, SharedPool, unpackValue } from '../../web/page/tensors/wire_tensors.js';
import { refusal } from './sentences.mjs';

const X = { name: 'x', dtype: 'float32', shape: ['N', 2] };
const floats = (...dims) => new Tensor('float32', new Float32Array(dims.reduce((a, b) => a * b, 1)), dims);
const stretched = Object.defineProperty(floats(1, 2), 'dims', { value: [4, 2] });

for (const [told, feeds, info] of [
  ['a tensor', { x: floats(3, 2) }, X],
  ['a tensor of no elements', { x: floats(0, 2) }, X],
  ['any rank and type', { x: floats(1) }, { name: 'x', dtype: null, shape: null }],
  ['none for an optional', { x: null }, { ...X, optional: true }],
  ['none where there is a default', {}, { ...X, hasDefault: true }],
  ['a sequence', { x: [floats(1, 2), floats(5, 2)] }, { ...X, sequence: true }],
]) {
  test(`taken: ${told}`, () => checkFeeds(feeds, [info]));
}

for (const [feeds, info, message] of [
  [null, X, 'feeds must be an object of tensors by input name (inputs: "x")'],
  [[floats(1, 2)], X, 'feeds must be an object of tensors by input name (inputs: "x")'],
  [floats(1, 2), X, 'feeds must be an object of tensors by input name (inputs: "x")'],
  [{}, X, 'input "x" is missing (inputs: "x")'],
  [{}, { ...X, name: 'toString' }, 'input "toString" is missing (inputs: "toString")'],
  [{ x: floats(1, 2), y: floats(1) }, X, 'there is no input "y" (inputs: "x")'],
  [{ x: null }, { ...X, hasDefault: true }, 'input "x" is not a tensor (make it with new ort.Tensor(type, data, dims))'],
  [{ x: new Float32Array(2) }, X, 'input "x" is not a tensor (make it with new ort.Tensor(type, data, dims))'],
  [{ x: floats(1, 2) }, { ...X, dtype: 'int64' }, 'input "x" must be int64, it is float32 (new ort.Tensor(\'int64\', data, dims))'],
  [{ x: floats(2) }, X, 'input "x" must be [N, 2], it is [2]: rank Got: 1 Expected: 2'],
  [{ x: floats(1, 3) }, X, 'input "x" must be [N, 2], it is [1, 3]: index: 1 Got: 3 Expected: 2'],
  [{ x: stretched }, X, 'input "x" of dims [4, 2] needs 8 elements, it has 2'],
  [{ x: floats(1, 2) }, { ...X, sequence: true }, 'input "x" is a sequence (feed an array of tensors)'],
  [{ x: [floats(1, 2), floats(1)] }, { ...X, sequence: true }, 'input "x[1]" must be [N, 2], it is [1]: rank Got: 1 Expected: 2'],
]) {
  test(`refused: ${message}`, () => assert.throws(() => checkFeeds(feeds, [info]), refusal('InvalidInput', message)));
}

test('an output that there is not', () => {
  checkFetches(['y'], [{ name: 'y' }]);
  assert.throws(() => checkFetches(['z'], [{ name: 'y' }]), refusal('InvalidInput', 'there is no output "z" (outputs: "y")'));
});

test("the caller's data is sent as one copy, what is shared as it is", () => {
  const packer = new Packer(new SharedPool());
  const own = floats(1, 2);
  const sent = packer.pack(own);
  assert.notEqual(sent.data.buffer, own.data.buffer);
  const carried = () => [...packer.transfer, ...packer.borrowed]; // Node.js shares memory where it can
  assert.deepEqual(carried(), [sent.data.buffer]);
  const data = new Float32Array(new SharedArrayBuffer(8));
  assert.equal(packer.pack(new Tensor('float32', data, [2])).data, data);
  assert.deepEqual(packer.packAll({ absent: null }), { absent: null });
  assert.equal(carried().length, 1);
});

test('shared buffers are used again where they are not far too large', () => {
  const pool = new SharedPool();
  const [small, large] = [new SharedArrayBuffer(1000), new SharedArrayBuffer(100_000)];
  pool.give([large, small]);
  assert.equal(pool.take(900), small);
  assert.equal(pool.take(900).byteLength, 1012); // a new one, with room
  assert.equal(pool.take(50_000), large);
  for (let n = 0; n < 40; n++) pool.give([new SharedArrayBuffer(8)]);
  assert.equal(pool.free.length, 16);
});

test('feeds that grow are carried by the same buffers for a while, however many they are', () => {
  const pool = new SharedPool();
  const used = new Set();
  for (let length = 1000; length < 2000; length++) {
    const taken = Array.from({ length: 50 }, () => pool.take(4 * length));
    taken.forEach((buffer) => used.add(buffer));
    pool.give(taken);
  }
  assert.ok(used.size <= 50 * 7, `${used.size} buffers`); // twice as long: ln 2 / ln 9/8
  assert.equal(pool.free.length, 50);
});

test('a tensor to fill must be of the type and dims that come out', () => {
  const wire = { type: 'float32', dims: [2], data: Float32Array.of(1, 2) };
  const into = floats(2);
  assert.equal(unpackValue('y', wire, into, null), into);
  assert.deepEqual([...into.data], [1, 2]);
  assert.throws(() => unpackValue('y', wire, floats(1, 2), null), { type: 'InvalidInput', detail: 'output "y" is float32 [2], the tensor to fill is float32 [1, 2]' });
  assert.deepEqual(unpackValue('y', [wire, wire], null, null).map(({ dims }) => dims), [[2], [2]]);
  assert.equal(unpackValue('y', null, null, null), null);
});

const A = { type: 'int64', dims: [2], data: BigInt64Array.of(3n, -4n) };

for (const [values, ranks, told] of [
  [true, true, { dtype: 'int64', dims: [2], data: [3, -4] }],
  [false, false, { dtype: 'int64', dims: [2] }],
  [false, true, { dtype: 'int64', dims: 1 }],
]) {
  test(`a feed described ${values ? 'with its values' : ranks ? 'by its rank' : 'by its dims'}`, () => {
    assert.deepEqual(describeFeed(A, values, ranks), told);
    assert.deepEqual(describeFeed([A, null], values, ranks), [told, null]);
  });
}

const NEEDS = { values: ['k'], dims: ['d'], defaults: null };
const with_ = (change) => ({ x: { type: 'float32', dims: [2] }, d: { type: 'float32', dims: [2] }, k: A, ...change });

for (const [told, change, same] of [
  ['the dims of an input whose rank counts', { x: { type: 'float32', dims: [3] } }, true],
  ['the rank of an input', { x: { type: 'float32', dims: [3, 1] } }, false],
  ['the type of an input', { x: { type: 'float64', dims: [2] } }, false],
  ['the dims of an input whose dims count', { d: { type: 'float32', dims: [3] } }, false],
  ['a value that counts', { k: { ...A, data: BigInt64Array.of(3n, 4n) } }, false],
  ['an absent optional', { d: null }, false],
]) {
  test(`${told}: ${same ? 'one Program' : 'another Program'}`, () => {
    assert.equal(programKey(with_(change), NEEDS) === programKey(with_({}), NEEDS), same);
  });
}

test('one Program for all feeds, and for all that leave out an input with a default', () => {
  assert.equal(programKey(with_({}), null), '');
  assert.equal(programKey(with_({}), { ...NEEDS, defaults: ['w'] }), '');
  assert.notEqual(programKey(with_({ w: A }), { ...NEEDS, defaults: ['w'] }), '');
});
