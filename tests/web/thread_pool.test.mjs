// Which threads a pool has.

import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { logging } from '../../web/common/log.js';
import { platform } from '../../web/common/platform.js';
import { ThreadPool } from '../../web/threads/pool.js';

const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
const team = (pool) => pool.team(2, /** @type {any} */ ({}), { memory }, /** @type {any} */ ({}));

logging.least = () => 4;

/** A pool whose threads answer with `state.failure`; `state.now` is the time. */
function made(state) {
  platform.worker = () => class {
    constructor() { state.started++; }
    postMessage() { queueMicrotask(() => this.onmessage({ data: state.failure })); }
    terminate() {}
  };
  mock.method(performance, 'now', () => state.now);
  return new ThreadPool('file:///worker.mjs');
}

test('a thread that failed is tried again after a while, when no Program is on threads', async () => {
  const state = { failure: '', started: 0, now: 1e6 };
  const pool = made(state);
  const first = await team(pool);
  assert.deepEqual([first.helpers, state.started], [[1], 1]);
  state.failure = 'it sleeps';
  assert.equal(await team(pool), null);
  state.failure = '';
  state.now += 61_000;
  assert.equal(await team(pool), null, 'the first Program may still name it');
  await pool.unload(first);
  clearTimeout(pool.timer);
  assert.deepEqual([(await team(pool)).helpers, state.started], [[1], 2]);
});

test('a thread that has just failed is not tried again', async () => {
  const state = { failure: 'it sleeps', started: 0, now: 1e6 };
  const pool = made(state);
  assert.equal(await team(pool), null);
  state.failure = '';
  state.now += 59_000;
  assert.deepEqual([await team(pool), state.started], [null, 1]);
});
