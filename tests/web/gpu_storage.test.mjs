// 64-bit integers converted to the GPU's 32 bits and back, at the limits of both.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ExecutionError } from '../../web/common/errors.js';
import { fromGpuStorage, toGpuStorage } from '../../web/gpu/storage.js';

const VIEWS = { int64: BigInt64Array, uint64: BigUint64Array };
const bytesOf = (dtype, values) => new Uint8Array(VIEWS[dtype].from(values).buffer);

for (const [dtype, values] of [
  ['int64', []],
  ['int64', [0n, 1n, -1n, 2n ** 31n - 1n, -(2n ** 31n)]],
  ['uint64', [0n, 1n, 2n ** 31n, 2n ** 32n - 1n]],
]) {
  test(`${dtype} [${values}] there and back`, () => {
    const stored = toGpuStorage(bytesOf(dtype, values), dtype);
    assert.equal(stored.length, 4 * values.length);
    const into = new Uint8Array(8 * values.length).fill(255);
    fromGpuStorage(stored, dtype, into);
    assert.deepEqual([...new VIEWS[dtype](into.buffer)], values);
  });
}

for (const [dtype, value] of [
  ['int64', 2n ** 31n], ['int64', -(2n ** 31n) - 1n], ['int64', 2n ** 32n], ['int64', -(2n ** 63n)],
  ['uint64', 2n ** 32n], ['uint64', 2n ** 64n - 1n],
]) {
  test(`${dtype} ${value} is refused, and named`, () => {
    assert.throws(() => toGpuStorage(bytesOf(dtype, [0n, value]), dtype), (error) => (
      error instanceof ExecutionError && error.message.includes(`${dtype} value ${value} does not fit`)
    ));
  });
}

test('bytes that do not begin at a word', () => {
  const bytes = new Uint8Array(17);
  bytes.set(bytesOf('int64', [-5n, 6n]), 1);
  assert.deepEqual([...new Int32Array(toGpuStorage(bytes.subarray(1), 'int64').buffer)], [-5, 6]);
});

test('other types are stored as they are', () => {
  const bytes = Uint8Array.of(1, 2, 3, 4);
  assert.equal(toGpuStorage(bytes, 'float32'), bytes);
  const into = new Uint8Array(4);
  fromGpuStorage(bytes, 'float32', into);
  assert.deepEqual(into, bytes);
});
