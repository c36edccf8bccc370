// Checkpoints that the page reads: types of other programs, and damaged files.

import assert from 'node:assert/strict';
import test from 'node:test';

import { read, write } from '../../web/common/safetensors.js';
import { fromCheckpoint } from '../../web/page/training/checkpoint.js';

const info = /** @type {any} */ ({ weights: [{ name: 'w', shape: [2], dtype: 'float32' }], count: 1, optimizer: 'sgd', lossScale: 1 });
const file = (/** @type {string} */ dtype, /** @type {ArrayLike<number> & ArrayBufferView} */ x, metadata = {}) => write(
  { w: { dtype, shape: [2], bytes: new Uint8Array(x.buffer) } }, metadata);

/** @param {unknown} shape @param {unknown} places */
function withHeader(shape, places) {
  const text = new TextEncoder().encode(JSON.stringify({ w: { dtype: 'F32', shape, data_offsets: places } }));
  const bytes = new Uint8Array(8 + text.length + 16);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  return bytes;
}

test('numbers of other types become those of the weight', () => {
  const given = /** @type {[string, any][]} */ ([['float64', Float64Array.of(1, 2)], ['int32', Int32Array.of(1, 2)],
    ['int64', BigInt64Array.of(1n, 2n)], ['float16', Uint16Array.of(0x3c00, 0x4000)], ['float32', Float32Array.of(1, 2)]]);
  for (const [dtype, x] of given) {
    assert.deepEqual([...new Float32Array(fromCheckpoint(file(dtype, x), info).values.w.buffer)], [1, 2], dtype);
  }
});

test('damaged files are refused', () => {
  for (const [shape, places] of [[[-1, -4], [0, 16]], [[4], [0.5, 16.5]], [[4], ['0', '16']], ['', [0, 4]]]) {
    assert.throws(() => read(withHeader(shape, places)), /no checkpoint/);
  }
  for (const step of ['x', '-1', '9'.repeat(40)]) {
    assert.throws(() => fromCheckpoint(file('float32', Float32Array.of(1, 2), { step }), info), /the checkpoint says step/);
  }
  for (const scale of ['x', '0', 'Infinity']) {
    const given = file('float32', Float32Array.of(1, 2), { loss_scale: scale });
    assert.throws(() => fromCheckpoint(given, { ...info, lossScale: 0 }), /the checkpoint says loss_scale/);
  }
});
