// What the page receives of outputs that stay for the next run.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ResidentOutputs } from '../../web/run/resident_outputs.js';

const PLACES = 8;
const COLUMNS = 2;

/** An output of so many rows behind a feed of three, of which `mixed` may be new. */
function output(rows, mixed, last = 1) {
  const input = { name: 'past', buffer: 0, dtype: 'float32', dims: [], room: { axis: 1, places: 'p', least: 0, mixed } };
  const held = new ResidentOutputs(/** @type {any} */ ({ header: { inputs: [input] } }));
  held.fed.set(0, /** @type {any} */ ({ input, feed: { held: 7, dims: [1, 3, COLUMNS] } }));
  const all = Float32Array.from({ length: PLACES * COLUMNS }, (_, i) => i + 1);
  all.fill(last, (rows - 1) * COLUMNS, rows * COLUMNS);
  const value = { buffer: 0, dtype: 'float32', dims: [1, rows, COLUMNS], room: { axis: 1, places: PLACES } };
  const { data, after } = held.output(/** @type {any} */ (value), value.dims, new Uint8Array(all.buffer), new Map());
  return { rows: /** @type {Float32Array} */ (data).length / COLUMNS, after };
}

test('new rows alone', () => assert.deepEqual(output(5, 2), { rows: 2, after: { held: 7, axis: 1, rows: 3 } }));
test('no more of what was fed than is not new', () => assert.deepEqual(output(5, 4), { rows: 4, after: { held: 7, axis: 1, rows: 1 } }));
test('where all may be new nothing is kept of what was fed', () => assert.deepEqual(output(5, 5), { rows: 5, after: undefined }));
test('all, where the last row was not written', () => assert.deepEqual(output(5, 2, 0), { rows: 5, after: undefined }));
