// Measuring Programs with other schedules, in turns with the standard one; Python decides which schedules.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CachedCompiler } from '../../web/worker/programs/cached_compiler.js';
import { Executor } from '../../web/run/executor.js';
import { tune } from '../../web/session/tune.js';

/** A model of Programs that are their own names; `log` has what becomes of them. */
function model(names, log, fails = '') {
  Executor.create = async (name) => {
    log.push(`open ${name.name}`);
    return {
      header: { outputs: [{ name: 'y' }], blocks: [] }, env: new Map(), code: {}, team: null, gpu: null,
      run: (_, fetches) => {
        if (name.name === fails) throw new Error('lost');
        log.push(`${'y' in fetches ? 'run' : 'profile'} ${name.name}`);
      },
      release: () => log.push(`close ${name.name}`),
    };
  };
  const program = (name) => ({ name, python: { destroy: () => log.push(`destroy ${name}`) } });
  const measured = [];
  const tuning = {
    standard: program('own'),
    next: () => (names.length ? program(names.shift()) : null),
    measured: (times) => measured.push(times),
    result: () => ({ choices: {}, before: measured.length ? 2 : null, after: 1, kernels: [] }),
    destroy: () => log.push('end'),
  };
  const compiler = { tuning: () => tuning };
  return { compiler, measured, host: {}, compileFor: async (feeds) => ({ feeds, described: {} }), weights: () => null };
}

test('each is measured in turns with the standard Program, and closed', async () => {
  const log = [];
  const found = model(['a', 'b'], log);
  const tuned = await tune(found, {}, 0);
  assert.deepEqual([tuned.choices, tuned.before, tuned.after], [{}, 2, 1]);
  assert.ok(tuned.took >= 0);
  const [own, a] = [['run own', 'profile own'], ['run a', 'profile a']];
  const cold = Array(3).fill(['run own', 'run a']).flat();
  assert.deepEqual(log.slice(0, 24), ['open own', 'open a', ...cold, ...own, ...a, ...a, ...own, ...own, ...a, ...a, ...own]);
  assert.deepEqual(log.slice(24, 27), ['close a', 'destroy a', 'open b']);
  assert.deepEqual(log.slice(-5), ['close b', 'destroy b', 'close own', 'destroy own', 'end']);
  assert.equal(found.measured.length, 2);
  for (const times of found.measured.flat()) assert.ok(times.run >= 0 && times.run < Infinity);
});

test('where no kernel has a knob the run is measured', async () => {
  const found = model([], []);
  await tune(found, {}, 0);
  assert.equal(found.measured.length, 1);
});

test('what fails leaves nothing open', async () => {
  const log = [];
  await assert.rejects(tune(model(['a'], log, 'a'), {}, 0), /lost/);
  assert.deepEqual(log.slice(-5), ['close a', 'destroy a', 'close own', 'destroy own', 'end']);
});

test('what cannot be tuned', async () => {
  for (const seconds of [-1, NaN, Infinity, 'x']) await assert.rejects(tune(model([], []), {}, seconds), /InvalidInput|seconds cannot be/);
  await assert.rejects(tune({ ...model([], []), compiler: {} }, {}, 0), /holds no model to tune/);
});

test('cached Programs start Python for it', async () => {
  const cached = new CachedCompiler({ info: '{}', needs: '{}', programs: new Map() }, async () => ({ tuning: (feeds) => [feeds] }));
  assert.deepEqual(await cached.tuning('feeds'), ['feeds']);
});
