// Trials by run times, with times that are made up.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fastest, Trial } from '../../web/runtime/trial.js';

for (const [costs, gain, winner] of [
  [[3, 2, 1], 1, 2], [[1, 2, 3], 1, 0], [[2, 2], 1, 0], [[10, 9.8, 9.9], 0.97, 0], [[10, 9.8, 9.6], 0.97, 2], [[3, 1, 1], 1, 1],
  [[Infinity, 5], 0.9, 1], [[5, Infinity], 0.9, 0],
]) {
  test(`of costs ${costs} with gain ${gain} candidate ${winner} is chosen`, () => assert.equal(fastest(costs, gain), winner));
}

/** The candidates of runs that take these times. */
const play = (trial, times, runs) => Array.from({ length: runs }, () => {
  const { current } = trial;
  trial.took(times[current]);
  return current;
});

test('candidates take turns, then the fastest settles', () => {
  const trial = new Trial(3, 2, 1, 4);
  assert.deepEqual(play(trial, [3, 1, 2], 8), [0, 1, 2, 0, 1, 2, 1, 1]);
  assert.deepEqual([trial.isSettled, trial.best, trial.current, trial.runs], [true, 1, 1, 2]);
});

test('after the runs of a winner a new trial begins, and its winner stays the best until then', () => {
  const trial = new Trial(2, 1, 1, 3);
  assert.deepEqual(play(trial, [2, 1], 5), [0, 1, 1, 1, 1]);
  assert.deepEqual([trial.isSettled, trial.best, trial.current, trial.times], [false, 1, 0, [[], []]]);
  assert.deepEqual(play(trial, [1, 2], 3), [0, 1, 0]);
  assert.equal(trial.best, 0);
});

test('the shortest run of a candidate counts', () => {
  const trial = new Trial(2, 2, 1, Infinity);
  for (const time of [5, 9, 4, 3]) trial.took(time);
  assert.equal(trial.best, 1);
});
