// How elements are stored, packed and returned, type by type.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import vm from 'node:vm';

import { elementSize, exactNumbers, fromNumbers, load, numbers, own, store, unpackBits } from '../../web/common/elements.js';

for (const [dtype, size] of [
  ['bool', 1], ['uint8', 1], ['int4', 1], ['uint4', 1], ['float16', 2], ['bfloat16', 2], ['int32', 4], ['float32', 4],
  ['int64', 8], ['float64', 8], ['complex64', 8], ['complex128', 16],
]) {
  test(`an element of ${dtype} takes ${size} bytes`, () => assert.equal(elementSize(dtype), size));
}

for (const [bits, signed, packed, values] of [
  [4, false, [0x21, 0xf0], [1, 2, 0, 15]],
  [4, true, [0x78, 0x9f], [-8, 7, -1, -7]],
  [4, true, [0xf7], [7]], // an odd number of elements
  [2, false, [0b11_10_01_00], [0, 1, 2, 3]],
  [2, true, [0b11_10_01_00], [0, 1, -2, -1]],
  [6, false, [0b01_000001, 0b1111_0000, 0b100000_11], [1, 1, 63, 32]], // an element in two bytes
  [1, false, [0b10000001, 1], [1, 0, 0, 0, 0, 0, 0, 1, 1]],
]) {
  test(`${bits} bits, ${signed ? 'signed' : 'unsigned'}: [${values}]`, () => {
    const into = new Int8Array(values.length);
    unpackBits(Uint8Array.from(packed), bits, signed, into);
    assert.deepEqual([...into], values);
  });
}

for (const [dtype, packed, inside] of [['int4', [0x8f, 0x07], [-1, -8, 7]], ['uint4', [0x8f, 0x07], [15, 8, 7]]]) {
  test(`${dtype} is two elements a byte outside and one inside`, () => {
    const bytes = new Uint8Array(inside.length);
    store(Uint8Array.from(packed), dtype, bytes);
    assert.deepEqual(numbers(bytes, dtype), inside);
    assert.deepEqual([...load(bytes, dtype, [3], null).data], packed);
  });
}

test('a bool is 0 or 1, whatever a mask has for true', () => {
  const into = new Uint8Array(4);
  store(new Uint8Array([255, 0, 1, 2]), 'bool', into);
  assert.deepEqual([...into], [1, 0, 1, 1]);
});

test('a view of part of a buffer is stored alone', () => {
  const into = new Uint8Array(4);
  store(new Int16Array([1, 2, 3, 4]).subarray(1, 3), 'int16', into);
  assert.deepEqual(numbers(into, 'int16'), [2, 3]);
});

test('a tensor for the page has memory of its own, not shared', () => {
  const bytes = new Uint8Array(new SharedArrayBuffer(16), 4, 8);
  bytes[0] = 9;
  const { data } = load(bytes, 'int32', [2], null);
  bytes.fill(0);
  assert.ok(data instanceof Int32Array && data.buffer instanceof ArrayBuffer);
  assert.deepEqual([...data], [9, 0]);
});

test('a target of the same size is filled, another is not', () => {
  const bytes = new Uint8Array(new Float32Array([1, 2]).buffer);
  const [fits, other] = [new Float32Array(2), new Float32Array(3)];
  assert.equal(load(bytes, 'float32', [2], { data: fits }).data, fits);
  assert.deepEqual([...fits], [1, 2]);
  assert.notEqual(load(bytes, 'float32', [2], { data: other }).data, other);
});

for (const [dtype, values, exact] of [
  ['float64', [0.5, -0, NaN, Infinity, -Infinity], [0.5, '-0', 'NaN', 'Infinity', '-Infinity']],
  ['int64', [2n ** 53n - 1n, 2n ** 53n, -(2n ** 63n), 0n], [2 ** 53 - 1, '9007199254740992', '-9223372036854775808', 0]],
  ['uint64', [2n ** 64n - 1n], ['18446744073709551615']],
  ['bool', [true, false], [1, 0]],
]) {
  test(`numbers of ${dtype} that JSON can hold, others as text`, () => {
    const bytes = new Uint8Array(fromNumbers(values, dtype).buffer);
    assert.deepEqual(exactNumbers(bytes, dtype), exact);
  });
}

test('arrays of another context, such as those of messages in jest, become arrays of this one', () => {
  for (const text of ['new Float32Array([1, 2])', 'new BigInt64Array([1n, 2n]).subarray(1)']) {
    const theirs = vm.runInNewContext(text);
    const data = own(theirs);
    assert.equal(data.constructor, globalThis[theirs.constructor.name]);
    assert.ok(data.buffer === theirs.buffer && data.byteOffset === theirs.byteOffset);
    assert.equal(data.join(), theirs.join());
  }
  const mine = new Uint8Array(2);
  assert.equal(own(mine), mine);
  assert.deepEqual(own(['a']), ['a']);
});
