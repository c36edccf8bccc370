// Sessions that save power rest between runs while the processor is under pressure.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Rests } from '../../web/page/executor/pressure.js';

/** Milliseconds that a session rests after a run of 60 ms. @param {AbortSignal[]} ends */
async function rested(rests, ...ends) {
  rests.note(performance.now() - 60);
  const start = performance.now();
  await rests.rest(null, ...ends);
  return performance.now() - start;
}

test('without the API nothing changes', async () => {
  const rests = new Rests();
  assert.ok(await rested(rests) < 5);
  rests.end();
});

test('rests are as long as the pressure demands', async () => {
  let [tell, observers] = [(state) => state, 0];
  globalThis.PressureObserver = class {
    constructor(callback) { tell = (state) => callback([{ state: 'nominal' }, { state }]); observers++; }
    async observe(source) { assert.equal(source, 'cpu'); throw new Error('forbidden'); }
    disconnect() { observers--; }
  };
  const [one, other] = [new Rests(), new Rests()];
  assert.equal(observers, 1, 'one for all sessions');
  for (const [state, least, most] of [['fair', 0, 20], ['serious', 50, 120], ['critical', 170, 260], ['nominal', 0, 20]]) {
    tell(state);
    const time = await rested(one);
    assert.ok(time >= least && time < most, `${state}: ${time}`);
  }
  tell('critical');
  assert.ok(await rested(one, AbortSignal.timeout(30)) < 100, 'a released session does not wait');
  one.end();
  assert.equal(observers, 1);
  other.end();
  assert.equal(observers, 0);
  assert.ok(await rested(other) < 20);
  delete globalThis.PressureObserver;
});
