// Commands on sessions of inference, and on batchers.

import fc from 'fast-check';
import { Entry, checkNumbers } from './world.js';
import { cache, gemm, numbers, total, wide } from './plain.js';

const PROVIDERS = [['wasm'], ['webgpu'], ['webgpu', 'wasm'], ['auto']];
const MOST = 6; // sessions at a time
const STEPS = 6; // most of a history
const WIDTH = 3; // of a row of the net "sums"
/** Options that are null are absent. */
const NULLS = {
  adapters: null, cache: null, gpuTimeout: null, memoryLimit: null, onProgress: null, outputs: null, preset: null, signal: null, logId: null,
};
const RUN_NULLS = { adapters: null, signal: null, tag: null, terminate: null };

export const at = fc.nat(20);
export const seed = fc.nat(50);
export const isAwaited = fc.boolean();
/** How a call is stopped. */
export const stops = fc.constantFrom('no', 'no', 'no', 'before', 'now', 'later', 'null');

/** Options of a call that stops it, and whether it must or may end with Terminated. */
export function stopOptions(how) {
  if (how === 'no') return { given: undefined, must: false, may: false };
  if (how === 'null') return { given: RUN_NULLS, must: false, may: false };
  const stop = new AbortController();
  if (how === 'before') stop.abort();
  const after = () => (how === 'now' ? stop.abort() : how === 'later' && setTimeout(() => stop.abort(), 3));
  return { given: { signal: stop.signal }, must: how === 'before', may: true, after };
}

/** What judges a call whose result `check` checks. must: the type of the error that it has to give */
export const judged = (check, { must = '', may = [] } = {}) => ({ value, error, isExcused }) => {
  if (isExcused) return true;
  if (error) return error === must || may.includes(error);
  if (must) throw new Error(`it should have rejected with ${must}`);
  check(value);
  return true;
};

/** Nets: feeds of a run by the number of rows and a seed, and the right output `y`. */
const NETS = {
  gemm: {
    sizes: [1, 2, 5],
    feeds: ({ ort, nets }, rows, n) => ({ x: new ort.Tensor('float32', numbers(rows * nets.gemm.inner, n), [rows, nets.gemm.inner]) }),
    right: ({ nets }, rows, n, active) => gemm(nets.gemm, numbers(rows * nets.gemm.inner, n), rows, active),
  },
  wide: {
    sizes: [32, 64, 96],
    feeds: ({ ort, nets }, rows, n) => ({ x: new ort.Tensor('float32', numbers(rows * nets.wide.size, n), [rows, nets.wide.size]) }),
    right: ({ nets }, rows, n) => wide(nets.wide, numbers(rows * nets.wide.size, n), rows),
  },
};

const ADAPTERS = [{}, {}, { one: 1 }, { two: -2 }, { one: 2, two: 1 }];

/** Creates a session; it joins the world once it is made. */
const create = {
  draw: fc.record({
    net: fc.constantFrom('gemm', 'gemm', 'wide', 'sums'), providers: fc.constantFrom(...PROVIDERS), onGpu: fc.boolean(),
    fallback: fc.constantFrom(true, true, false), threads: fc.constantFrom(1, 2), isCached: fc.boolean(), nulls: fc.boolean(), stop: stops, isAwaited,
  }),
  check: (world) => world.entries.length < MOST,
  async run(world, { net, providers, onGpu, fallback, threads, isCached, nulls, stop, isAwaited: awaited }) {
    const { ort, nets } = world;
    const { given = {}, must, may, after } = stopOptions(stop === 'null' ? 'no' : stop);
    const adapters = net === 'gemm' ? Object.fromEntries(Object.entries(nets.gemm.adapters).map(([name, { file }]) => [name, file])) : null;
    const options = {
      ...nulls ? NULLS : {}, executionProviders: providers, fallback, intraOpNumThreads: threads, ...adapters && { adapters },
      ...onGpu && providers[0] === 'webgpu' && { preferredOutputLocation: 'gpu-buffer' },
      ...isCached ? {} : { extra: { session: { disable_program_cache: '1' } } }, ...given,
    };
    const entry = new Entry(net, null, { providers, fallback });
    if (world.fault) entry.excuse(world.fault);
    const join = (session) => {
      entry.object = session;
      world.entries.push(entry);
    };
    await world.call(`create ${net}`, entry, () => ort.InferenceSession.create(nets[net].model, options),
      judged(join, { must: must ? 'Terminated' : '', may: may ? ['Terminated'] : [] }), awaited && !after);
    after?.();
  },
};

/** A run of a session whose outputs its feeds alone decide. The caller changes its feeds as soon as the call returns. */
const run = {
  draw: fc.record({
    net: fc.constantFrom('gemm', 'gemm', 'wide'), at, size: fc.nat(2), seed, adapters: fc.constantFrom(...ADAPTERS), stop: stops,
    fetches: fc.constantFrom('none', 'names', 'null', 'into'), isAwaited,
  }),
  check: (world, { net }) => world.has(net),
  async run(world, { net, at: n, size, seed: numbered, adapters, stop, fetches, isAwaited: awaited }) {
    const entry = world.pick(net, n);
    const rows = NETS[net].sizes[size];
    const feeds = NETS[net].feeds(world, rows, numbered);
    const active = net === 'gemm' ? adapters : {};
    const right = NETS[net].right(world, rows, numbered, active);
    const { given, must, may, after } = stopOptions(stop);
    const options = Object.keys(active).length ? { ...given, adapters: active } : given;
    const into = fetches === 'into' ? new world.ort.Tensor('float32', new Float32Array(right.length), [rows, right.length / rows]) : null;
    const args = { none: [options], names: [['y'], options], null: [{ y: null }, options], into: [{ y: into }, options] }[fetches];
    const check = async ({ y }) => checkNumbers('y', await y.getData(), right);
    await world.call(`run ${net}`, entry, () => entry.object.run(feeds, ...args).then(async (results) => void await check(results)),
      judged(() => {}, { must: must ? 'Terminated' : '', may: may ? ['Terminated'] : [] }), false);
    feeds.x.data.fill(99);
    after?.();
    if (awaited) await world.settle();
  },
};

/** Calls that must be refused. */
const WRONG = {
  'no feed': (session) => session.run({}),
  'null feeds': (session) => session.run(null),
  'no feeds': (session) => session.run(),
  'a number': (session) => session.run(5),
  'a name of the engine': (session, { x }) => session.run({ x, 'adapters:A': x }),
  'another name': (session, { x }) => session.run({ z: x }),
  'another type': (session, { x }, { Tensor }) => session.run({ x: new Tensor('int32', new Int32Array(x.size), x.dims) }),
  'other dims': (session, { x }, { Tensor }) => session.run({ x: new Tensor('float32', new Float32Array(7), [1, 7]) }),
  'no tensor': (session) => session.run({ x: 5 }),
  'an unknown output': (session, feeds) => session.run(feeds, ['none']),
  'an unknown adapter': (session, feeds) => session.run(feeds, { adapters: { none: 1 } }),
  'a signal that is none': (session, feeds) => session.run(feeds, { signal: 5 }),
};
const wrong = {
  draw: fc.record({ net: fc.constantFrom('gemm', 'wide'), at, how: fc.constantFrom(...Object.keys(WRONG)), isAwaited }),
  check: (world, { net }) => world.has(net),
  async run(world, { net, at: n, how, isAwaited: awaited }) {
    const entry = world.pick(net, n);
    const feeds = NETS[net].feeds(world, NETS[net].sizes[0], 1);
    await world.call(`run with ${how}`, entry, () => WRONG[how](entry.object, feeds, world.ort), judged(() => {}, { must: 'InvalidInput' }), awaited);
  },
};

/** A step of the net "sums": a new cache is the old one and a row for each item of the batch. The old one stays as it is. */
const feedBack = {
  draw: fc.record({ at, tensor: fc.option(at, { nil: -1 }), seed, batch: fc.constantFrom(1, 2), stop: stops, isAwaited }),
  check: (world) => world.has('sums'),
  async run(world, { at: n, tensor, seed: numbered, batch: size, stop, isAwaited: awaited }) {
    const { ort, tensors } = world;
    const entry = world.pick('sums', n);
    const past = tensors.length && tensor >= 0 ? tensors[tensor % tensors.length] : null;
    if (past && past.history.length >= STEPS) return;
    const batch = past?.batch ?? size;
    const x = numbers(batch * WIDTH, numbered);
    const history = [...past?.history ?? [], [...x]];
    const { given, must, may, after } = stopOptions(stop);
    const empty = new ort.Tensor('float32', new Float32Array(0), [batch, 0, WIDTH]);
    const feeds = { x: new ort.Tensor('float32', x, [batch, WIDTH]), past: past?.value ?? empty };
    const stopped = { must: must ? 'Terminated' : '', may: [...may ? ['Terminated'] : [], ...past?.isLost ? ['DeviceLost'] : []] };
    const errors = past?.isDisposed ? { must: 'InvalidInput' } : stopped;
    const check = ({ present, found }) => {
      checkNumbers('total', found, total(history));
      if (!entry.isReleased) tensors.push({ value: present, history, batch, entry, isLost: false, isDisposed: false });
    };
    const take = async ({ present, total: sums }) => ({ present, found: await sums.getData() });
    await world.call('feed back', entry, () => entry.object.run(feeds, given).then(take), judged(check, errors), false);
    x.fill(99);
    after?.();
    if (awaited) await world.settle();
  },
};

/** Reads a cache that a run has made, however long ago. */
const read = {
  draw: fc.record({ at, isAwaited }),
  check: ({ tensors }) => tensors.length > 0,
  async run(world, { at: n, isAwaited: awaited }) {
    const tensor = world.tensors[n % world.tensors.length];
    if (tensor.isDisposed) return;
    const { value, history, batch, entry, isLost } = tensor;
    const check = (data) => checkNumbers('present', data, cache(history, batch, WIDTH));
    await world.call('read a tensor', entry, () => value.getData(), judged(check, { may: isLost ? ['DeviceLost'] : [] }), awaited);
  },
};

const dispose = {
  draw: fc.record({ at }),
  check: ({ tensors }) => tensors.length > 0,
  async run(world, { at: n }) {
    await world.settle();
    const tensor = world.tensors[n % world.tensors.length];
    tensor.value.dispose();
    tensor.isDisposed = true;
  },
};

const BATCHED = ['ok', 'ok', 'ok', 'wrong', 'stopped', 'stopped before'];
const request = fc.record({
  rows: fc.constantFrom(1, 2, 3), seed, adapters: fc.constantFrom(...ADAPTERS), how: fc.constantFrom(...BATCHED),
});
const batch = {
  draw: fc.record({
    at, requests: fc.array(request, { minLength: 1, maxLength: 5 }), closes: fc.boolean(), isAwaited,
    options: fc.constantFrom(undefined, null, { size: 3, wait: 1 }, { size: null, wait: null, pad: null, dim: null, outputs: null }),
  }),
  check: (world) => world.has('gemm'),
  async run(world, { at: n, requests, options, closes, isAwaited: awaited }) {
    const entry = world.pick('gemm', n);
    const batcher = new world.extras.Batcher(entry.object, options);
    for (const { rows, seed: numbered, adapters, how } of requests) {
      const feeds = how === 'wrong' ? { x: new world.ort.Tensor('float32', [1], [1]) } : NETS.gemm.feeds(world, rows, numbered);
      const right = NETS.gemm.right(world, rows, numbered, adapters);
      const { given = {}, after, must, may } = stopOptions({ stopped: 'now', 'stopped before': 'before' }[how] ?? 'no');
      const refused = how === 'wrong' ? 'InvalidInput' : must ? 'Terminated' : '';
      await world.call(`batch ${how}`, entry, () => batcher.run(feeds, { ...given, adapters }), judged(
        ({ y }) => checkNumbers('y of a batch', y.data, right), { must: refused, may: may ? ['Terminated'] : [] }), false);
      if (how !== 'wrong') feeds.x.data.fill(99);
      after?.();
    }
    if (closes) {
      await world.call('close', entry, () => batcher.close(), judged(() => {}), false);
      await world.call('run of a closed batcher', entry, () => batcher.run({}), judged(() => {}, { must: 'SessionFailed' }), false);
    }
    if (awaited) await world.settle();
  },
};

const INQUIRIES = {
  explain: ({ object }) => object.explain(), memory: ({ object }) => object.memory(null), metrics: ({ object }) => object.metrics(),
  trim: ({ object }) => object.trim(),
  prepare: ({ object }) => object.prepare({ dims: { N: 7 } }),
};
const inquire = {
  draw: fc.record({ net: fc.constantFrom('gemm', 'wide', 'training'), at, what: fc.constantFrom(...Object.keys(INQUIRIES)), isAwaited }),
  check: (world, { net, what }) => world.has(net) && (net !== 'training' || what !== 'prepare'),
  async run(world, { net, at: n, what, isAwaited: awaited }) {
    const entry = world.pick(net, n);
    await world.call(what, entry, () => INQUIRIES[what](entry), judged(() => {}), awaited);
  },
};

/** Exports the compiled Program, and opens it as another session. */
const reopen = {
  draw: fc.record({ at, seed }),
  check: (world) => world.has('wide') && world.entries.length < MOST,
  async run(world, { at: n, seed: numbered }) {
    await world.settle();
    const entry = world.pick('wide', n);
    const { fault } = world;
    if (entry.isProgram) return;
    let file = null;
    const may = entry.object.handler.gpu.hasMoved ? ['InvalidInput'] : [];
    await world.call('export', entry, () => entry.object.export(null), judged((bytes) => { file = bytes; }, { may }));
    if (!file || fault) return;
    const made = new Entry('wide', null, { providers: ['wasm'], isProgram: true });
    await world.call('create from a Program', made, () => world.ort.InferenceSession.create(file, { executionProviders: ['wasm'] }), judged((session) => {
      made.object = session;
      world.entries.push(made);
    }));
    const right = NETS.wide.right(world, 32, numbered);
    const run = () => made.object.run(NETS.wide.feeds(world, 32, numbered));
    await world.call('run of a Program', made, run, judged(({ y }) => checkNumbers('y', y.data, right)));
  },
};

/** Releases a session, also while it works; later calls are refused. */
const release = {
  draw: fc.record({ at, isAwaited }),
  check: (world) => world.entries.length > 0,
  async run(world, { at: n, isAwaited: awaited }) {
    const entry = world.entries[n % world.entries.length];
    entry.isReleased = true;
    world.entries = world.entries.filter((one) => one !== entry);
    world.tensors = world.tensors.filter((one) => one.entry !== entry);
    await world.call('release', entry, () => entry.object.release(), judged(() => {}), false);
    const busy = entry.kind === 'text' && world.pending.length ? ['InvalidInput'] : [];
    const again = { training: 'evaluate', text: 'generate' }[entry.kind] ?? 'run';
    const use = () => entry.object[again](entry.kind === 'text' ? [1] : {});
    await world.call(`${again} after release`, entry, use, judged(() => {}, { must: 'SessionFailed', may: busy }), false);
    await world.call('release again', entry, () => entry.object.release(), judged(() => {}), awaited);
  },
};

export const inference = { create, run, wrong, feedBack, read, dispose, batch, inquire, reopen, release };
