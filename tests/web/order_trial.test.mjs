// In which order weights are read, on machines made up: as tests/test_order_trial.py has it for Python.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OrderTrial } from '../../web/runtime/order_trial.js';

const [LEAST, ORDERS] = [8192, [0, 1, 2]];
const TRIED = 13; // runs until it is settled: of the first nothing is known

/**
 * The orders of runs that take so long by order, and read so many KiB.
 * @param {OrderTrial} trial @param {number[]} took @param {number[]} reads
 */
const play = (trial, took, reads) => reads.map((read) => {
  const { order } = trial;
  trial.took(read, took[order]);
  return order;
});

const many = (/** @type {number} */ runs, read = LEAST) => new Array(runs).fill(read);

for (const [took, best] of /** @type {[number[], number][]} */ ([[[1, 1.4, 1.3], 0], [[1.3, 1, 1.1], 1], [[3, 2.9, 1], 2], [[1, 0.98, 0.99], 0]])) {
  test(`of ${took} ms order ${best} stays`, () => {
    const orders = play(new OrderTrial(), took, many(TRIED + 9));
    assert.deepEqual(orders.slice(1, TRIED), [...ORDERS, ...ORDERS, ...ORDERS, ...ORDERS]);
    assert.deepEqual(orders.slice(TRIED), many(9, best));
  });
}

test('runs count that read as much', () => {
  const [trial, took] = [new OrderTrial(), [1, 0.5, 1]];
  assert.deepEqual(play(trial, took, many(80, LEAST - 1)), many(80, 0));
  assert.deepEqual(play(trial, took, many(80).map((read, n) => read * (1 + 3 * (n % 2)))), many(80, 0));
  assert.equal(play(trial, took, many(TRIED + 1)).at(-1), 1);
  assert.deepEqual(play(trial, took, [0, LEAST, 1024, LEAST]), many(4, 1));
  assert.deepEqual(play(trial, took, many(3, 2 * LEAST)), [1, 0, 1]); // more: tried anew
});

test('runs on other threads begin it anew', () => {
  const trial = new OrderTrial();
  play(trial, [1, 0.5, 1], many(TRIED - 1));
  trial.took(LEAST, 1, true);
  assert.deepEqual([trial.order, trial.best], [0, 0]);
  for (let n = 1; n < TRIED; n++) trial.took(LEAST, trial.order === 1 ? 0.5 : 1, true);
  assert.deepEqual([trial.order, trial.best], [1, 1]);
  trial.took(2 * LEAST, 1, true);
  assert.deepEqual([trial.order, trial.best], [0, 1]);
});

test('what misled it passes', () => {
  const trial = new OrderTrial();
  assert.equal(play(trial, [3, 2, 3], many(TRIED + 1)).at(-1), 1);
  const later = play(trial, [1, 1.4, 1.3], many(1000 + TRIED));
  assert.deepEqual(later.slice(0, 999), many(999, 1));
  assert.equal(later.at(-1), 0);
});
