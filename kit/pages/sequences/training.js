// Commands on sessions that train.

import fc from 'fast-check';
import { Entry, checkNumbers } from './world.js';
import { at, isAwaited, judged, seed, stopOptions, stops } from './inference.js';
import { Learner, numbers } from './plain.js';

const NEAR = 1e-3; // sums in float32, in another order
const RATE = 1 / 256;
const MOST = 6;
/** Options that are null are absent. */
const NULLS = {
  clip: null, frozen: null, lora: null, memory: null, mode: null, schedule: null, trainable: null, stepOutputs: null, signal: null, lossScale: null,
  seed: null,
};

/** Feeds of a batch: small numbers, so that learning neither ends nor diverges. */
function batchOf({ ort, nets: { training: { inner, columns } } }, rows, n) {
  const x = numbers(rows * inner, n).map((v) => v / 4);
  const target = numbers(rows * columns, n + 7).map((v) => v / 2);
  const feeds = { x: new ort.Tensor('float32', x.slice(), [rows, inner]), target: new ort.Tensor('float32', target.slice(), [rows, columns]) };
  return { x, target, rows, feeds };
}

/** Judges a call of a session that trains. Calls have effects in their order, so `act` changes the learner when it is judged. */
const learned = (entry, act, { must = () => '', may = [] } = {}) => (outcome) => {
  if (outcome.error === 'SessionFailed' && entry.mayRefuse) return true;
  if (outcome.isExcused || outcome.error === 'Terminated') entry.mayRefuse = true; // it may have stopped while weights changed
  const isRight = judged((value) => act(entry.learner, value), { must: must(), may })(outcome);
  if (!outcome.error) entry.mayRefuse = false;
  return isRight;
};

function checkStep(learner, found, loss) {
  checkNumbers('loss', [found.loss], [loss], NEAR);
  checkNumbers('step', [found.step], [learner.step]);
}

const create = {
  draw: fc.record({ providers: fc.constantFrom(['wasm'], ['wasm'], ['webgpu'], ['webgpu', 'wasm']), accumulates: fc.boolean(), nulls: fc.boolean() }),
  check: (world) => world.entries.length < MOST,
  async run(world, { providers, accumulates, nulls }) {
    const { ort, nets: { training: { model, w, b } } } = world;
    const options = {
      ...nulls && NULLS,
      loss: { mse: 'y' }, optimizer: { sgd: { rate: RATE } }, accumulate: accumulates, executionProviders: providers,
    };
    const entry = new Entry('training', null, { providers });
    Object.assign(entry, { learner: new Learner(w, b, RATE), accumulates, mayRefuse: false, checkpoints: [] });
    if (world.fault) entry.excuse(world.fault);
    await world.call('create training', entry, () => ort.TrainingSession.create(model, options), judged((session) => {
      entry.object = session;
      world.entries.push(entry);
    }));
  },
};

/** Steps that the caller may stop; it changes its feeds as soon as the call returns. */
const step = {
  draw: fc.record({ at, rows: fc.constantFrom(1, 3), seed, stop: stops, isAwaited }),
  check: (world) => world.has('training'),
  async run(world, { at: n, rows, seed: numbered, stop, isAwaited: awaited }) {
    const entry = world.pick('training', n);
    const { x, target, feeds } = batchOf(world, rows, numbered);
    const { given, must, may, after } = stopOptions(stop);
    const act = (learner, found) => {
      const loss = learner.loss(x, target, rows);
      learner.accumulate(x, target, rows);
      learner.apply();
      checkStep(learner, found, loss);
    };
    const waits = () => (entry.learner.waiting.count ? 'InvalidInput' : must ? 'Terminated' : '');
    const options = given && { ...given, adapters: undefined, tag: undefined, terminate: undefined, rate: null };
    await world.call('step', entry, () => entry.object.step(feeds, options), learned(entry, act, { must: waits, may: may ? ['Terminated'] : [] }), false);
    for (const tensor of Object.values(feeds)) tensor.data.fill(99);
    after?.();
    if (awaited) await world.settle();
  },
};

const accumulate = {
  draw: fc.record({ at, rows: fc.constantFrom(1, 3), seed, isAwaited }),
  check: (world) => world.has('training'),
  async run(world, { at: n, rows, seed: numbered, isAwaited: awaited }) {
    const entry = world.pick('training', n);
    const { x, target, feeds } = batchOf(world, rows, numbered);
    const act = (learner, found) => {
      checkStep(learner, found, learner.loss(x, target, rows));
      learner.accumulate(x, target, rows);
    };
    const must = () => (entry.accumulates ? '' : 'InvalidInput');
    await world.call('accumulate', entry, () => entry.object.accumulate(feeds, null), learned(entry, act, { must }), awaited);
  },
};

const apply = {
  draw: fc.record({ at, sum: fc.constantFrom(undefined, null, true, false), isAwaited }),
  check: (world) => world.has('training'),
  async run(world, { at: n, sum, isAwaited: awaited }) {
    const entry = world.pick('training', n);
    const act = (learner, found) => {
      const { losses, count } = learner.waiting;
      checkNumbers('loss', [found.loss], [losses / count], NEAR);
      learner.apply(Boolean(sum));
      checkNumbers('step', [found.step], [learner.step]);
    };
    const must = () => (entry.accumulates && entry.learner.waiting.count ? '' : 'InvalidInput');
    await world.call('apply', entry, () => entry.object.apply({ sum, rate: null }), learned(entry, act, { must }), awaited);
  },
};

const evaluate = {
  draw: fc.record({ at, rows: fc.constantFrom(1, 3), seed, how: fc.constantFrom('loss', 'outputs', 'no target', 'wrong', 'own name'), isAwaited }),
  check: (world) => world.has('training'),
  async run(world, { at: n, rows, seed: numbered, how, isAwaited: awaited }) {
    const entry = world.pick('training', n);
    const { x, target, feeds } = batchOf(world, rows, numbered);
    if (how === 'no target') delete feeds.target;
    if (how === 'wrong') delete feeds.x;
    if (how === 'own name') feeds['training:numbers'] = feeds.x;
    const act = (learner, { loss, y }) => {
      if (how !== 'no target') checkNumbers('loss', [loss], [learner.loss(x, target, rows)], NEAR);
      if (how !== 'loss') checkNumbers('y', y.data, learner.outputs(x, rows), NEAR);
    };
    const must = () => (['wrong', 'own name'].includes(how) ? 'InvalidInput' : '');
    await world.call(`evaluate ${how}`, entry, () => entry.object.evaluate(feeds, how === 'outputs' ? ['y'] : null, null), learned(entry, act, { must }), awaited);
  },
};

/** Checks and copies the weights; a checkpoint has the gradients that wait, too. */
const save = {
  draw: fc.record({ at, isAwaited }),
  check: (world) => world.has('training'),
  async run(world, { at: n, isAwaited: awaited }) {
    const entry = world.pick('training', n);
    const act = (learner, file) => { entry.checkpoints.push({ file, learner: learner.copy() }); };
    await world.call('state', entry, () => entry.object.state(), learned(entry, act), awaited);
    const check = ({ w, b }, found) => {
      checkNumbers('w', found.w.data, w, NEAR);
      checkNumbers('b', found.b.data, b, NEAR);
    };
    await world.call('weights', entry, () => entry.object.weights(), learned(entry, check), awaited);
  },
};

const load = {
  draw: fc.record({ at, from: at, isAwaited }),
  check: (world) => world.has('training'),
  async run(world, { at: n, from, isAwaited: awaited }) {
    const entry = world.pick('training', n);
    const { checkpoints } = entry;
    const checkpoint = checkpoints.length ? checkpoints[from % checkpoints.length] : null;
    const act = () => { entry.learner = checkpoint.learner.loaded(); };
    const must = () => (checkpoint ? '' : 'InvalidInput');
    const file = checkpoint?.file.slice() ?? null;
    await world.call('load', entry, () => entry.object.load(file), learned(entry, act, { must }), false);
    file?.fill(99);
    if (awaited) await world.settle();
  },
};

const setWeights = {
  draw: fc.record({ at, seed, isAwaited }),
  check: (world) => world.has('training'),
  async run(world, { at: n, seed: numbered, isAwaited: awaited }) {
    const entry = world.pick('training', n);
    const { ort, nets: { training: { inner, columns } } } = world;
    const w = numbers(inner * columns, numbered).map((v) => v / 8);
    const tensor = new ort.Tensor('float32', w.slice(), [inner, columns]);
    const act = (learner) => { learner.w = Float64Array.from(w); };
    await world.call('setWeights', entry, () => entry.object.setWeights({ w: tensor }), learned(entry, act), false);
    tensor.data.fill(99);
    if (awaited) await world.settle();
  },
};

/** The exported model, run as another session. */
const exported = {
  draw: fc.record({ at, seed }),
  check: (world) => world.has('training'),
  async run(world, { at: n, seed: numbered }) {
    await world.settle();
    const entry = world.pick('training', n);
    const { x, feeds } = batchOf(world, 2, numbered);
    const act = (learner, y) => checkNumbers('y of the exported model', y, learner.outputs(x, 2), NEAR);
    const run = async () => {
      const session = await world.ort.InferenceSession.create(await entry.object.export(), { executionProviders: ['wasm'] });
      const { y } = await session.run({ x: feeds.x });
      await session.release();
      return y.data;
    };
    await world.call('export of training', entry, run, learned(entry, act));
  },
};

export const training = { create, step, accumulate, apply, evaluate, save, load, setWeights, exported };
