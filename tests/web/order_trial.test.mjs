// In which order weights are read, on machines made up: as tests/test_order_trial.py has it for Python.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OrderTrial } from '../../web/run/order_trial.js';

const [ORDER, LEAST, ORDERS] = [528, 8192, [0, 1, 4, 2]];
const TRIED = 17; // runs until it is settled: of the first nothing is known

/**
 * The orders of runs that take so long by order, and read so many KiB.
 * @param {OrderTrial} trial @param {Uint8Array} memory @param {number[]} took by place in ORDERS @param {number[]} reads
 * @param {(run: number) => boolean} shared
 */
function play(trial, memory, took, reads, shared = () => false) {
  const words = new Int32Array(memory.buffer, ORDER, 2);
  return reads.map((read, run) => {
    const order = words[0];
    words[1] = read;
    trial.took(memory, took[ORDERS.indexOf(order)], shared(run));
    assert.equal(words[1], 0);
    return order;
  });
}

const many = (/** @type {number} */ runs, read = LEAST) => new Array(runs).fill(read);

for (const [took, best] of /** @type {[number[], number][]} */ ([
  [[1, 1.4, 1.3, 1], 0], [[1.3, 1, 1.1, 1.3], 1], [[3, 2.9, 1, 3], 4], [[1, 1.1, 1.1, 0.9], 2], [[1, 0.98, 0.99, 1], 0],
])) {
  test(`of ${took} ms order ${best} stays`, () => {
    const orders = play(new OrderTrial(), new Uint8Array(1024), took, many(TRIED + 9));
    assert.deepEqual(orders.slice(1, TRIED), [...ORDERS, ...ORDERS, ...ORDERS, ...ORDERS]);
    assert.deepEqual(orders.slice(TRIED), many(9, best));
  });
}

test('runs count that read as much, on as many threads', () => {
  const [trial, memory, took] = [new OrderTrial(), new Uint8Array(1024), [1, 0.5, 1, 1]];
  assert.deepEqual(play(trial, memory, took, many(80, LEAST - 1)), many(80, 0));
  assert.deepEqual(play(trial, memory, took, many(80).map((read, n) => read * (1 + 3 * (n % 2)))), many(80, 0));
  assert.deepEqual(play(trial, memory, took, many(80), (run) => run % 2 === 0), many(80, 0));
  assert.equal(play(trial, memory, took, many(TRIED + 1)).at(-1), 1);
  assert.deepEqual(play(trial, memory, took, [0, LEAST, 1024, LEAST]), many(4, 1));
  assert.deepEqual(play(trial, memory, took, many(3, 2 * LEAST)), [1, 0, 1]); // more: tried anew
});
