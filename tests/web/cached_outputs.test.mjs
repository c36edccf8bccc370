// Outputs that the worker keeps: they are fed back by id until somebody reads their data.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Tensor } from 'onnxruntime-common';
import { allRows } from '../../web/page/tensors/appended_rows.js';
import { CachedOutput, Leases } from '../../web/page/tensors/cached_outputs.js';

const SESSION = {};
const first = () => new CachedOutput('float32', SESSION, 1, allRows(Float32Array.of(1, 2), [2]));

/** An output that begins with the rows of a fed one. */
function second(fed) {
  const leases = new Leases([fed], SESSION);
  const rows = leases.rowsOf({ data: Float32Array.of(3), dims: [3], after: { held: 1, axis: 0, rows: 2 } });
  leases.release();
  return new CachedOutput('float32', SESSION, 2, rows);
}

test('is a tensor of its dims', () => {
  const output = second(first());
  assert.ok(output instanceof Tensor);
  assert.deepEqual([output.type, output.dims, output.size, output.location], ['float32', [3], 3, 'cpu']);
});

test('reading joins the rows, once', async () => {
  const output = second(first());
  assert.ok(CachedOutput.unread(output));
  assert.deepEqual(output.data, Float32Array.of(1, 2, 3));
  assert.equal(output.data, await output.getData());
  assert.equal(CachedOutput.unread(output), null);
  assert.deepEqual(output.reshape([1, 3]).data, output.data);
});

test('readers cannot change the rows of another', () => {
  const fed = first();
  const output = second(fed);
  fed.data.fill(9);
  assert.deepEqual(output.data, Float32Array.of(1, 2, 3));
});

test('readers cannot change what a run in progress is fed', () => {
  const output = first();
  const leases = new Leases([output], SESSION);
  output.data.fill(9);
  assert.deepEqual(leases.byTensor.get(output).rows.data, Float32Array.of(1, 2));
});

test('data that nothing else needs are not copied', () => {
  const data = Float32Array.of(1, 2);
  assert.equal(new CachedOutput('float32', SESSION, 1, allRows(data, [2])).data, data);
});

test('half floats', () => {
  const output = new CachedOutput('float16', SESSION, 1, { ...allRows(Uint16Array.of(0x3c00), [2]), from: 1, before: allRows(Uint16Array.of(0), [1]) });
  assert.equal(output.data.constructor, globalThis.Float16Array ?? Uint16Array);
});

test('is fed by id only to its session, unread, with its own dims', () => {
  const [other, read, reshaped] = [first(), first(), first()];
  assert.ok(read.data);
  reshaped.dims = [1, 2];
  assert.equal(new Leases([other], {}).byTensor.size, 0);
  assert.equal(new Leases([read, reshaped, new Tensor(Float32Array.of(1)), null, 'x'], SESSION).byTensor.size, 0);
  assert.equal(new Leases([other, other], SESSION).byTensor.size, 1);
});

test('is disposed of', () => {
  for (const output of [first(), second(first())]) {
    output.dispose();
    assert.throws(() => output.data, /disposed/);
    assert.equal(CachedOutput.unread(output), null);
  }
});
