// The core of a session: its states, its table of Programs, and what it does after faults of the GPU.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DeviceLost, ExecutionError, OutOfMemory } from '../../web/common/errors.js';
import { setting } from '../../web/gpu/setting.js';
import { MAX_PROGRAMS, TRANSITIONS } from '../../web/runtime/session_rules.js';
import { ProgramTable } from '../../web/session/program_table.js';
import { prepare } from '../../web/session/prepare.js';
import { runWithRecovery } from '../../web/session/recovery.js';
import { SessionState } from '../../web/session/states.js';
import { timeline } from '../../web/session/timeline.js';
import { refusal } from './sentences.mjs';

for (const [from, allowed] of Object.entries(TRANSITIONS)) {
  for (const to of Object.keys(TRANSITIONS)) {
    test(`from ${from} to ${to}: ${allowed.includes(to) ? 'legal' : 'an error'}`, () => {
      const state = Object.assign(new SessionState(), { current: from });
      if (allowed.includes(to)) return state.enter(to);
      const message = from === 'released' ? 'the session was released (create another)' : `a session cannot go from ${from} to ${to}`;
      assert.throws(() => state.enter(to), refusal('SessionFailed', message));
    });
  }
}

test('after work a session is ready, whether it failed or not', async () => {
  const state = new SessionState();
  assert.equal(await state.finish(async () => state.current), 'running');
  await assert.rejects(state.during(async () => { throw new Error('bad feeds'); }), /bad feeds/);
  assert.equal(state.current, 'ready');
  state.enter('released');
  await assert.rejects(state.during(async () => {}), { detail: 'the session was released' });
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

/** A model on this GPU, with these providers; `faults` are thrown by its tries, one each, and null is success. */
function model(gpu, faults, named = ['webgpu', 'wasm'], fallback = true) {
  const log = [];
  const made = {
    log, state: new SessionState(), table: table(['']), host: { gpu, named, fallback }, leftGpu: null, moved: [],
    compiler: { leaveGpu: (nodes) => log.push(`leave ${Object.keys(nodes)}`) }, change: async (change) => change(), prepare: async () => {}, saveStates: async () => {},
  };
  made.run = () => made.state.finish(() => runWithRecovery(made, async () => {
    log.push(made.state.current);
    const fault = faults.shift();
    if (fault) throw fault(gpu);
    return 'done';
  }, ({ lost }) => lost && log.push(`lost ${lost}`)));
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
const refuse = (...nodes) => () => Object.assign(new ExecutionError('refused'), { atFault: Object.fromEntries(nodes.map((node) => [node, 'refused'])) });
const hang = () => Object.assign(new DeviceLost('no answer'), { isLate: true });

/** What a test expects of a run: its tries and moves, what has left the GPU, and how it ends. */
const RUNS = {
  'a full GPU is freed and tried once more': { faults: [gpuFull], log: ['running', 'running'], moved: [] },
  'a session leaves a GPU that stays full': { faults: [gpuFull, gpuFull], log: ['running', 'running', 'leave ', 'running'], moved: [''] },
  'alone, a GPU that stays full is an error': { faults: [gpuFull, gpuFull], named: ['webgpu'], log: ['running', 'running'], moved: [], error: OutOfMemory },
  'refused nodes leave the GPU': { faults: [refuse('a', 'b')], log: ['running', 'leave a,b', 'running'], moved: ['a', 'b'] },
  'other nodes follow them': { faults: [refuse('a'), refuse('b')], log: ['running', 'leave a', 'running', 'leave b', 'running'], moved: ['a', 'b'] },
  'a session leaves if a node is refused twice': { faults: [refuse('a'), refuse('a')], log: ['running', 'leave a', 'running', 'leave ', 'running'], moved: [''] },
  'a session leaves if nobody knows the node': { faults: [refuse('')], log: ['running', 'leave ', 'running'], moved: [''] },
  'alone, a refused node is an error': { faults: [refuse('a')], named: ['webgpu'], log: ['running'], moved: [], error: ExecutionError },
  'a session leaves a GPU that hangs': { faults: [hang], log: ['running', 'leave ', 'running'], moved: [''] },
  'without another device a session leaves': { faults: [lose], log: ['running', 'leave ', 'lost gone', 'running'], moved: [''] },
  'alone, too': { faults: [lose], named: ['webgpu'], log: ['running', 'leave ', 'lost gone', 'running'], moved: [''] },
  'webgpu after wasm is not a next provider': { faults: [refuse('a')], named: ['wasm', 'webgpu'], log: ['running'], moved: [], error: ExecutionError },
  'without fallback a full GPU is an error': { faults: [gpuFull], fallback: false, log: ['running'], moved: [], error: OutOfMemory },
  'without fallback a lost device is an error': { faults: [lose], fallback: false, log: ['running'], moved: [], error: DeviceLost, state: 'failed' },
};

for (const [name, { faults, named, fallback, log, moved, error, state = 'ready' }] of Object.entries(RUNS)) {
  test(name, async (context) => {
    setting.device = null;
    const warn = context.mock.method(console, 'warn', () => {});
    const found = model(device(true), faults, named, fallback);
    if (error) await assert.rejects(found.run(), error);
    else assert.equal(await found.run(), 'done');
    assert.deepEqual([found.log, found.moved.map(({ node }) => node), found.state.current], [log, moved, state]);
    assert.equal(warn.mock.callCount(), moved.length ? 1 : 0);
    for (const { reason } of found.moved) assert.ok(warn.mock.calls[0].arguments[0].includes(`${reason}; `));
    assert.equal(found.host.gpu === null, moved.join() === '' && moved.length > 0);
  });
}

test("a lost device of the page's own fails a session without another provider, and each run tries again", async () => {
  const found = model(device(false), [lose], ['webgpu']);
  for (let n = 0; n < 2; n++) {
    if (n) found.state.enter('running');
    await assert.rejects(found.run(), DeviceLost);
    assert.equal(found.state.current, 'failed');
  }
  assert.deepEqual(found.log, ['running']);
  const other = model(device(false), [lose]);
  assert.equal(await other.run(), 'done');
});

test('a session that cannot continue on WebAssembly fails', async () => {
  const found = model(device(true), [lose]);
  found.compiler.leaveGpu = () => { throw new Error('an exported program'); };
  await assert.rejects(found.run(), /an exported program/);
  assert.equal(found.state.current, 'failed');
});

test('other errors are no reason to try again', async () => {
  const found = model(device(true), [() => new Error('bad feeds')]);
  await assert.rejects(found.run(), /bad feeds/);
  assert.deepEqual([found.log, found.state.current], [['running'], 'ready']);
});

/** A model whose run moves from the first executor to the second, because memory was freed or the GPU had a fault. */
function movingModel() {
  const [first, second] = [1, 2].map((n) => {
    const plan = { log: [], header: { inputs: [] }, observer: null, tighten() {}, beginReserve: () => plan.log.push('begin'), endReserve: (env) => plan.log.push(env) };
    return { plan, env: new Map([['n', n]]) };
  });
  const work = ({ plan, env }) => async () => {
    plan.observer?.changed({ spans: new Map() }, { spans: new Map([[0, { address: env.get('n'), size: 4 }]]) });
    if (plan === first.plan) throw new Error('moved');
  };
  return {
    executors: [first, second], inputs: [{ name: 'x', dtype: 'float32', shape: ['n'] }], outputs: [], compileFor: async (feeds) => ({ feeds }),
    async run(feeds, fetches, stop, around) {
      await assert.rejects(async () => around(first, work(first)), /moved/);
      await around(second, work(second));
    },
  };
}

test('prepare reserves memory in the executor that has run', async () => {
  const model = movingModel();
  await prepare(model, { n: 4 });
  assert.deepEqual(model.executors.map(({ plan }) => plan.log), [['begin', new Map()], ['begin', new Map([['n', 2]])]]);
});

test('a timeline is that of the executor that has run', async () => {
  const model = movingModel();
  assert.deepEqual((await timeline(model, {})).map(({ address }) => address), [2]);
  assert.ok(model.executors.every(({ plan }) => plan.observer === null));
});
