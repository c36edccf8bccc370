// Whether to use threads, on simulated machines: milliseconds of a run, alone and shared.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ThreadTrial } from '../../web/run/thread_trial.js';

/**
 * Which runs were shared. shared: milliseconds of a shared run in equal spans of the runs; slow: runs that take 12 ms;
 * cold: milliseconds of the run alone before the code was warm.
 */
function play(alone, shared, runs, slow = [], cold = alone) {
  const trial = new ThreadTrial();
  trial.tookCold(cold);
  const ways = [];
  for (let n = 0; n < runs; n++) {
    ways.push(trial.current);
    const time = trial.current ? shared[Math.floor(n * shared.length / runs)] : alone;
    trial.took(slow.includes(n) ? 12 : time);
  }
  return { ways, long: trial.isLong };
}

const share = (ways) => ways.reduce((sum, way) => sum + way, 0) / ways.length;

for (const [alone, shared, least] of [[1, 0.6, 0.95], [15, 8, 0.95], [800, 400, 0.95]]) {
  test(`${shared} ms shared instead of ${alone}: at least ${least} of the runs are`, () => {
    assert.ok(share(play(alone, [shared], alone < 100 ? 6000 : 60).ways) >= least);
  });
}

for (const [alone, shared, most] of [[1, 0.95, 0.2], [1, 1.8, 0.2], [1, 22, 0.1]]) { // a gain of less than a tenth does not pay
  test(`${shared} ms shared instead of ${alone}: at most ${most} of the runs are`, () => {
    assert.ok(share(play(alone, [shared], 6000).ways) <= most);
  });
}

test('runs of seconds, which lose where they share nothing, are alone four times in two minutes', () => {
  const { ways } = play(2000, [1100], 110);
  assert.equal(ways.filter((way) => !way).length, 4);
});

for (const [cold, alone, shared] of [[2000, 12, 20], [450, 30, 60], [600, 200, 240]]) {
  test(`a cold run of ${cold} ms does not keep runs of ${alone} ms shared, which takes ${shared}`, () => {
    const { ways } = play(alone, [shared], Math.round(30_000 / alone), [], cold);
    assert.ok(share(ways) < 0.25, `${share(ways)}`);
  });
}

test('a machine that changes', () => {
  const { ways } = play(1, [0.6, 1.8, 0.6], 60_000);
  const shares = [0, 1, 2].map((third) => share(ways.slice(20_000 * third, 20_000 * (third + 1))));
  assert.ok(shares[0] > 0.8 && shares[1] < 0.3 && shares[2] > 0.5, `${shares}`);
});

test('threads that begin while the other core is taken join soon after', () => {
  const { ways } = play(20, [26, 26, 26, 26, ...Array(96).fill(11)], 100);
  assert.ok(share(ways.slice(0, 50)) > 0.6, `${ways}`);
});

test('threads that lose the other core for a while stay', () => {
  const shared = [...Array(100).fill(11), ...Array(10).fill(26), ...Array(190).fill(11)];
  assert.ok(share(play(20, shared, 300).ways) > 0.85);
});

test('a run that loses its core changes nothing', () => {
  const [calm, slow] = [[], [500, 600, 700]].map((runs) => play(1, [0.6], 900, runs).ways.slice(0, 800));
  assert.deepEqual(slow, calm);
});

for (const [alone, long] of [[1, false], [15, true]]) {
  test(`runs of ${alone} ms are ${long ? '' : 'not '}long`, () => assert.equal(play(alone, [0.6 * alone], 400).long, long));
}
