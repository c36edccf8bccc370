import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allRows, joinRows } from '../../web/page/tensors/appended_rows.js';
import { gather } from '../../web/run/room.js';

/** Numbers that tell their place. */
const values = (dims, from = 0) => Float32Array.from({ length: dims.reduce((a, b) => a * b, 1) }, (_, i) => from + i);

/** Elements of a tensor between places of an axis. */
function part(data, dims, axis, begin, end) {
  const [outer, inner] = [dims.slice(0, axis), dims.slice(axis + 1)].map((some) => some.reduce((a, b) => a * b, 1));
  const out = [];
  for (let n = 0; n < outer; n++) out.push(...data.slice((n * dims[axis] + begin) * inner, (n * dims[axis] + end) * inner));
  return Float32Array.from(out);
}

const growths = [[[1, 3, 0, 2], 2, [1, 4]], [[2, 3, 5, 2], 2, [6, 9, 9, 10]], [[4, 3], 0, [5, 7]], [[2, 1], 1, [2, 3]]];
for (const [dims, axis, totals] of growths) {
  test(`rows of [${dims}] along axis ${axis} up to ${totals}`, () => {
    const last = dims.with(axis, totals.at(-1));
    const full = values(last);
    let rows = allRows(part(full, last, axis, 0, dims[axis]), dims);
    const all = [rows];
    for (const total of totals) {
      const from = rows.dims[axis];
      rows = { data: part(full, last, axis, from, total), dims: dims.with(axis, total), axis, from, before: rows, shared: false };
      all.push(rows);
    }
    for (const one of all) assert.deepEqual(joinRows(one), part(full, last, axis, 0, one.dims[axis]));
    assert.notEqual(joinRows(all[0]).buffer, all[0].data.buffer);
  });
}

test('new rows take the place of the last of those before', () => {
  const base = allRows(values([1, 2, 4, 1]), [1, 2, 4, 1]);
  const second = { data: values([1, 2, 3, 1], 100), dims: [1, 2, 5, 1], axis: 2, from: 2, before: base, shared: false };
  const third = { data: values([1, 2, 5, 1], 200), dims: [1, 2, 6, 1], axis: 2, from: 1, before: second, shared: false };
  assert.deepEqual([...joinRows(second)], [0, 1, 100, 101, 102, 4, 5, 103, 104, 105]);
  assert.deepEqual([...joinRows(third)], [0, 200, 201, 202, 203, 204, 4, 205, 206, 207, 208, 209]);
});

test('bytes behind those that are known', () => {
  const runs = { count: 2, length: 3, stride: 5 };
  const bytes = Uint8Array.from({ length: 10 }, (_, i) => i);
  assert.deepEqual([...gather(bytes, runs, 2)], [2, 7]);
  assert.deepEqual([...gather(bytes, runs, 3)], []);
});
