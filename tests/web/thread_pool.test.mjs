// Which threads a pool has.

import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { logging } from '../../web/common/log.js';
import { platform } from '../../web/common/platform.js';
import { ThreadPool } from '../../web/threads/pool.js';

const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
const team = (pool) => pool.team(2, /** @type {any} */ ({}), { memory }, /** @type {any} */ ({}));

test('a thread that failed is tried again after a while, when no Program is on threads', async () => {
  logging.least = () => 4;
  let failure = '';
  let started = 0;
  platform.worker = () => class {
    constructor() { started++; }
    postMessage() { queueMicrotask(() => this.onmessage({ data: failure })); }
    terminate() {}
  };
  let now = 1e6;
  mock.method(performance, 'now', () => now);
  const pool = new ThreadPool('file:///worker.mjs');
  const first = await team(pool);
  assert.deepEqual([first.helpers, started], [[1], 1]);
  failure = 'it sleeps';
  assert.equal(await team(pool), null);
  failure = '';
  now += 61_000;
  assert.equal(await team(pool), null, 'the first Program may still name it');
  await pool.unload(first);
  clearTimeout(pool.timer);
  assert.deepEqual([(await team(pool)).helpers, started], [[1], 2]);
  pool.exclude(1, 'again');
  pool.teams = 0;
  assert.equal(await team(pool), null, 'it has just failed');
});
