// The batcher of pages, on a session whose runs are JavaScript. tests/test_batcher.py has its native twin.

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { Tensor } from 'onnxruntime-common';
import { ExecutionError, InvalidInput, SessionFailed, Terminated } from '../../web/common/errors.js';
import { Batcher } from '../../web/extras/index.js';

/** y = x * k, for x (N, S) and a scalar k; a row of 9s fails the run, and so does `error`. */
class Session {
  static classes = { Tensor, InvalidInput, SessionFailed, Terminated };
  runs = [];
  error = null;
  started = () => {};
  inputMetadata = [{ name: 'x', isTensor: true, shape: ['N', 'S'] }, { name: 'k', isTensor: true, shape: [] }];
  outputMetadata = [{ name: 'y', isTensor: true, shape: ['N', 'S'] }];
  outputNames = ['y'];
  handler = { checked: (feeds) => feeds };

  async run({ x, k }, outputs, { signal }) {
    this.runs.push([...x.dims]);
    this.started();
    await new Promise((done) => setTimeout(done, 5));
    if (this.error) throw this.error;
    if (signal?.aborted) throw new Terminated('the run was stopped');
    if (x.data.includes(9)) throw new ExecutionError('9');
    return { y: new Tensor('float32', x.data.map((n) => n * k.data[0]), x.dims) };
  }
}

const feeds = (n, length = 3, k = 2) => ({
  x: new Tensor('float32', new Float32Array(length).fill(n), [1, length]), k: new Tensor('float32', [k], []),
});
const numbers = ({ y }) => [y.dims.join(), ...new Set(y.data)];

test('requests of equal dims share runs', async () => {
  const session = new Session();
  const batcher = new Batcher(session, { size: 4, wait: 60_000 });
  const asked = Array.from({ length: 24 }, (_, n) => [n % 9, 2 + n % 2, 1 + n % 3]);
  const found = await Promise.all(asked.map((args) => batcher.run(feeds(...args))));
  assert.deepEqual(found.map(numbers), asked.map(([n, length, k]) => [`1,${length}`, n * k]));
  assert.equal(session.runs.length, 6);
});

test('padded requests get their own lengths', async () => {
  const session = new Session();
  const batcher = new Batcher(session, { size: 4, wait: 60_000, pad: { x: 1 } });
  const found = await Promise.all([3, 1, 4, 2].map((length) => batcher.run(feeds(length, length))));
  assert.deepEqual([found.map(numbers), session.runs], [[3, 1, 4, 2].map((n) => [`1,${n}`, 2 * n]), [[4, 4]]]);
});

test('requests with equal adapters share runs, and what the session feeds for them is no part of a batch', async () => {
  const session = new Session();
  const asked = [];
  const seen = [];
  const run = session.run.bind(session);
  session.run = (all, outputs, options) => {
    asked.push(options.adapters);
    seen.push(Object.keys(all).join());
    return run(all, outputs, options);
  };
  session.handler.checked = (all, _, adapters) => ({ ...all, 'adapters:A': new Tensor('float32', adapters ? [1] : [], [adapters ? 1 : 0]) });
  const batcher = new Batcher(session, { size: 8, wait: 60_000 });
  const mine = ['mine'];
  const wanted = [undefined, 'mine', null, mine, ['mine'], { mine: 0.5 }, 'mine'];
  const found = Promise.all(wanted.map((adapters, n) => batcher.run(feeds(n), { adapters })));
  mine[0] = 'other'; // the caller changes it while the request waits
  await batcher.close();
  assert.deepEqual((await found).map(numbers), wanted.map((_, n) => ['1,3', 2 * n]));
  assert.deepEqual(asked.map((one) => one ?? null), [null, 'mine', ['mine'], { mine: 0.5 }]);
  assert.deepEqual([...new Set(seen)], ['x,k']);
});

for (const [type, data, pad, whole] of [
  ['float32', [5], 1, [5, 1, 5, 5]], ['int64', [5n], 1, [5n, 1n, 5n, 5n]], ['int64', [5n], 0n, [5n, 0n, 5n, 5n]], ['string', ['a'], '', ['a', '', 'a', 'a']],
]) {
  test(`${type} is padded with ${typeof pad} ${pad}`, async () => {
    const session = new Session();
    const batcher = new Batcher(session, { size: 2, wait: 60_000, pad: { x: pad } });
    session.run = async ({ x }) => ({ y: new Tensor(type, session.seen = [...x.data], x.dims) });
    const k = new Tensor('float32', [1], []);
    const found = await Promise.all([1, 2].map((n) => batcher.run({ x: new Tensor(type, Array(n).fill(data[0]), [1, n]), k })));
    assert.deepEqual([session.seen, found.map(({ y }) => [...y.data])], [whole, [[whole[0]], whole.slice(2)]]);
  });
}

test('a request at fault fails alone, an ended session fails all at once', async () => {
  const session = new Session();
  const batcher = new Batcher(session, { size: 8, wait: 60_000 });
  const several = () => Promise.allSettled([1, 2, 9, 4, 5, 6, 7, 8].map((n) => batcher.run(feeds(n))));
  assert.deepEqual((await several()).map(({ reason }) => reason?.type ?? 'right'), Array.from({ length: 8 }, (_, n) => (n === 2 ? 'ExecutionError' : 'right')));
  assert.equal(session.runs.length, 7); // 8, 4, 2, 1, 1, 2, 4
  session.error = new SessionFailed('the worker is gone');
  assert.ok((await several()).every(({ reason }) => reason === session.error));
  assert.equal(session.runs.length, 8);
});

test('a request waits no longer than asked, and feeds are copied', async () => {
  const session = new Session();
  const batcher = new Batcher(session, { size: 8, wait: 20 });
  const mine = feeds(1);
  const start = performance.now();
  const found = [batcher.run(mine), batcher.run(feeds(2))];
  mine.x.data.fill(9);
  assert.deepEqual((await Promise.all(found)).map(numbers), [['1,3', 2], ['1,3', 4]]);
  assert.ok(performance.now() - start >= 20 && session.runs.length === 1);
});

test('signals drop requests, and stop a run that no request needs', async () => {
  const session = new Session();
  const batcher = new Batcher(session, { size: 2, wait: 60_000 });
  const controllers = Array.from({ length: 3 }, () => new AbortController());
  const started = new Promise((resolve) => { session.started = resolve; });
  const found = controllers.map(({ signal }, n) => batcher.run(feeds(n), { signal }).catch(({ type, name }) => `${type} ${name}`));
  await started;
  controllers[0].abort(); // runs with the second
  controllers[2].abort(); // waits
  assert.deepEqual(await Promise.all(found.map(async (f) => (await f).y ? 'right' : f)), ['Terminated AbortError', 'right', 'Terminated AbortError']);
  assert.equal(session.runs.length, 1);
  const both = new AbortController();
  let stopped;
  session.run = async (_, __, { signal }) => {
    queueMicrotask(() => both.abort());
    await new Promise((resolve) => { signal.onabort = resolve; });
    throw stopped = new Terminated('the run was stopped');
  };
  const two = [0, 1].map((n) => batcher.run(feeds(n), { signal: both.signal }).catch(({ type }) => type));
  assert.deepEqual(await Promise.all(two), ['Terminated', 'Terminated']);
  await batcher.close();
  assert.ok(stopped && !getEventListeners(both.signal, 'abort').length && !getEventListeners(controllers[1].signal, 'abort').length);
});

test('close runs what waits, and later requests are refused', async () => {
  const session = new Session();
  const batcher = new Batcher(session, { size: 8, wait: 60_000 });
  const found = batcher.run(feeds(1));
  await Promise.all([batcher.close(), batcher.close()]);
  assert.deepEqual(numbers(await found), ['1,3', 2]);
  await assert.rejects(batcher.run(feeds(1)), { type: 'SessionFailed' });
});

test('what cannot be batched is refused', async () => {
  const session = new Session();
  assert.throws(() => new Batcher({}), TypeError);
  assert.throws(() => new Batcher(session, { size: 0 }), InvalidInput);
  assert.throws(() => new Batcher(session, { dim: 'B' }), { message: /no input has the first dim "B"/ });
  const batcher = new Batcher(session);
  await assert.rejects(batcher.run({ x: new Tensor('float32', [], [0, 3]) }), InvalidInput);
  session.outputMetadata = [{ name: 'y', isTensor: true, shape: [1, 'S'] }];
  assert.throws(() => new Batcher(session), { message: /output "y" has no batch dim/ });
});
