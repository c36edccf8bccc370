// The core of a session: its states, its table of Programs, and what it does after faults of the GPU.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DeviceLost, OutOfMemory } from '../../web/common/errors.js';
import { setting } from '../../web/gpu/setting.js';
import { MAX_PROGRAMS, TRANSITIONS } from '../../web/runtime/session_rules.js';
import { ProgramTable } from '../../web/session/program_table.js';
import { runWithRecovery } from '../../web/session/recovery.js';
import { SessionState } from '../../web/session/states.js';

for (const [from, allowed] of Object.entries(TRANSITIONS)) {
  for (const to of Object.keys(TRANSITIONS)) {
    test(`from ${from} to ${to}: ${allowed.includes(to) ? 'legal' : 'an error'}`, () => {
      const state = Object.assign(new SessionState(), { current: from });
      if (allowed.includes(to)) return state.enter(to);
      const message = from === 'released' ? 'the session was released' : `a session cannot go from ${from} to ${to}`;
      assert.throws(() => state.enter(to), { type: 'SessionFailed', message });
    });
  }
}

test('after work a session is ready, whether it failed or not', async () => {
  const state = new SessionState();
  assert.equal(await state.finish(async () => state.current), 'running');
  await assert.rejects(state.during(async () => { throw new Error('bad feeds'); }), /bad feeds/);
  assert.equal(state.current, 'ready');
  state.enter('released');
  await assert.rejects(state.during(async () => {}), { message: 'the session was released' });
});

/** A table of these keys whose executors and Programs log their end. */
function table(keys, log = []) {
  const made = new ProgramTable();
  for (const key of keys) {
    made.add(key, { python: { destroy: () => log.push(`destroy ${key}`) } });
    made.executors.set(key, { key, release: () => log.push(`release ${key}`), arenaBytes: () => 8 });
  }
  return made;
}

test('a full table forgets its oldest Program', () => {
  const log = [];
  const keys = Array.from({ length: MAX_PROGRAMS + 1 }, (_, n) => `${n}`);
  const full = table(keys, log);
  assert.deepEqual([log, [...full.programs.keys()]], [['release 0', 'destroy 0'], keys.slice(1)]);
  full.add('1', {}); // a Program that is there replaces itself
  assert.equal(full.programs.size, MAX_PROGRAMS);
});

test('memory of other Programs is freed', () => {
  const log = [];
  const some = table(['a', 'b', 'c'], log);
  some.latestKey = 'b';
  assert.equal(some.freeOthers(), true);
  assert.deepEqual([log, some.arenaBytes(), some.programs.size], [['release a', 'release c'], 8, 3]);
  assert.equal(some.freeOthers(), false);
  assert.equal(some.latestExecutor.key, 'b');
});

const gpuFull = () => Object.assign(new OutOfMemory('full'), { gpu: true });

/** A model on this GPU; `faults` are thrown by its tries, one each, and null is success. */
function model(gpu, faults) {
  const log = [];
  const made = {
    log, state: new SessionState(), table: table(['']), host: { gpu }, lostGpu: '', compiler: { fallBackToWasm: () => log.push('wasm') },
    recompile: async (change) => change(),
  };
  made.run = () => made.state.finish(() => runWithRecovery(made, async () => {
    log.push(made.state.current);
    const fault = faults.shift();
    if (fault) throw fault(gpu);
    return 'done';
  }, (lost) => lost && log.push(`lost ${lost}`)));
  return made;
}

const device = (replaceable) => ({
  lost: '', replaceable, freePools() {}, settle() {},
  throwIfLost() { if (this.lost) throw new DeviceLost(this.lost); },
});
const lose = (gpu) => {
  gpu.lost = 'gone';
  return new DeviceLost('gone');
};

test('a full GPU is freed and tried once more', async () => {
  const found = model(device(true), [gpuFull]);
  assert.equal(await found.run(), 'done');
  assert.deepEqual([found.log, found.table.executors.size, found.state.current], [['running', 'running'], 0, 'ready']);
});

test('a GPU that stays full is an error, and the session is ready', async () => {
  const found = model(device(true), [gpuFull, gpuFull]);
  await assert.rejects(found.run(), OutOfMemory);
  assert.equal(found.state.current, 'ready');
});

test('without another device a session continues on WebAssembly', async () => {
  setting.device = null;
  const found = model(device(true), [lose]);
  assert.equal(await found.run(), 'done');
  assert.deepEqual(found.log, ['running', 'wasm', 'lost gone', 'running']);
  assert.deepEqual([found.host.gpu, found.lostGpu, found.state.current], [null, 'gone', 'ready']);
});

test("a lost device of the page's own fails the session, and each run tries again", async () => {
  const found = model(device(false), [lose]);
  for (let n = 0; n < 2; n++) {
    if (n) found.state.enter('running');
    await assert.rejects(found.run(), DeviceLost);
    assert.equal(found.state.current, 'failed');
  }
  assert.deepEqual(found.log, ['running']);
});

test('a session that cannot continue on WebAssembly fails', async () => {
  const found = model(device(true), [lose]);
  found.compiler.fallBackToWasm = () => { throw new Error('an exported program'); };
  await assert.rejects(found.run(), /an exported program/);
  assert.equal(found.state.current, 'failed');
});

test('other errors are no reason to try again', async () => {
  const found = model(device(true), [() => new Error('bad feeds')]);
  await assert.rejects(found.run(), /bad feeds/);
  assert.deepEqual([found.log, found.state.current], [['running'], 'ready']);
});
