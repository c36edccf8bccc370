// The provider "auto": what is measured when, and that a session moves to the GPU only if that is faster.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ProviderTrial, SETTLED, TIMING, WANTED } from '../../web/runtime/provider_trial.js';
import { GpuTrial } from '../../web/worker/models/gpu_trial.js';

const [FEEDS, OTHERS] = [4, 400].map((n) => ({ x: { type: 'float32', dims: [1, n], data: new Float32Array(n) } }));
const took = (trial, ...times) => times.forEach((time) => trial.took(10, time));

test('short runs need no GPU, until they are long', () => {
  const trial = new ProviderTrial(0);
  took(trial, 9, 1.5, 1.4);
  assert.equal(trial.state, TIMING);
  took(trial, 1.6);
  assert.deepEqual([trial.state, trial.onGpu, trial.why], [SETTLED, false, 'auto: a run takes 1.4 ms on WebAssembly, too little for a GPU']);
  took(trial, 20, 20, 3, 20, 20, 20);
  assert.equal(trial.state, SETTLED, 'some runs were disturbed');
  took(trial, 20, 20, 20, 20);
  assert.equal(trial.state, WANTED);
});

test('runs of other sizes do not count together', () => {
  const trial = new ProviderTrial(0);
  for (const [elements, time] of [[10, 20], [10, 20], [100, 200], [10, 20], [10, 20], [10, 20]]) trial.took(elements, time);
  assert.equal(trial.state, TIMING);
  trial.took(11, 22);
  assert.deepEqual([trial.state, trial.best], [WANTED, 20]);
});

for (const [time, wins] of [[17, true], [19, false], [30, false]]) {
  test(`20 ms on WebAssembly, ${time} ms on the GPU`, () => {
    const trial = new ProviderTrial(0);
    took(trial, 20, 20, 20, 20);
    assert.deepEqual([99, time + 5, time, time + 1].map((each) => trial.tookOnGpu(each)), [true, true, true, false], 'the first run does not count');
    assert.deepEqual([trial.state, trial.onGpu, trial.why], [SETTLED, wins, `auto: a run takes 20.0 ms on WebAssembly, ${time}.0 ms on the GPU`]);
  });
}

test('a choice of an earlier visit is kept while runs are as long', () => {
  const trial = new ProviderTrial(20);
  took(trial, 60, 60, 60, 60, 60, 60);
  assert.equal(trial.state, SETTLED);
  took(trial, 90, 90, 90, 90);
  took(trial, 90, 90, 90);
  assert.equal(trial.state, WANTED);
});

/** A model whose runs take some milliseconds; it notes its feeds. */
function gpuModel(milliseconds, error = null, place = 'gpu') {
  const model = { latest: { header: { blocks: [{ steps: [{ op: place }] }] } }, outputs: [{ name: 'y' }], host: { gpu: {} }, feeds: [], released: 0, release() { model.released++; },
    async run(feeds) {
      if (error) throw error;
      model.feeds.push(feeds);
      await new Promise((resolve) => setTimeout(resolve, milliseconds));
      return {};
    } };
  return model;
}

/** Runs of a session until its trial has ended. */
async function trialOf(model, end = false) {
  const [running, kept, adopted] = [{ host: { gpu: null } }, [], []];
  const ended = Promise.withResolvers ? Promise.withResolvers() : (() => { let resolve; return { promise: new Promise((r) => { resolve = r; }), resolve }; })();
  const trial = new GpuTrial(0, async (from) => { assert.equal(from, running); return model; }, (choice) => { kept.push(choice.onGpu); ended.resolve(); });
  trial.adopt = async (winner) => { adopted.push(winner); };
  const held = { x: { ...FEEDS.x, held: 7 } };
  for (let n = 0; n < 3; n++) trial.took(running, FEEDS, ['y'], 40);
  trial.took(running, held, ['y'], 40);
  assert.ok(trial.lacksData(held) && !trial.lacksData(FEEDS), 'the worker asks for the data of one run');
  trial.took(running, FEEDS, ['y'], 40);
  assert.ok(trial.isMeasuring && !trial.lacksData(held));
  FEEDS.x.data.fill(1); // the page uses its memory again
  trial.took(running, OTHERS, ['y'], 400);
  if (end) { trial.end(); setTimeout(ended.resolve, 300); }
  await ended.promise;
  await new Promise((resolve) => setTimeout(resolve, 10));
  FEEDS.x.data.fill(0);
  return { kept, adopted, trial };
}

test('a session moves to a faster GPU', async () => {
  const model = gpuModel(2);
  const { kept, adopted, trial } = await trialOf(model);
  assert.deepEqual([kept, adopted, model.released, trial.isMeasuring], [[true], [model], 0, false]);
  assert.equal(model.feeds.length, 4);
  assert.ok(model.feeds.every(({ x }) => x.data.every((value) => value === 0)), 'the feeds are a copy');
});

for (const [what, model, why] of [
  ['is slower', gpuModel(60), /ms on the GPU$/],
  ['has no kernel', gpuModel(1, null, 'wasm'), /no kernel is worth/],
  ['fails', gpuModel(1, new Error('no shader')), /the GPU failed: no shader/],
  ['is lost', { ...gpuModel(1), host: { gpu: null }, moved: [{ node: '', reason: 'gone' }] }, /the GPU failed: gone/],
]) {
  test(`a session stays on WebAssembly if the GPU ${what}`, async () => {
    let released = 0;
    model.release = () => { released++; };
    const { kept, adopted, trial } = await trialOf(model);
    assert.deepEqual([kept, adopted, released], [[false], [], 1]);
    assert.match(trial.why, why);
  });
}

test('a released session measures nothing', async () => {
  const model = gpuModel(1);
  const { kept, adopted } = await trialOf(model, true);
  assert.deepEqual([kept, adopted, model.feeds], [[], [], []]);
});
