// Stopping: how a page stops a call, how the worker learns of it, and runs in portions.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { InvalidInput, Terminated } from '../../web/common/errors.js';
import { Stop, STOP, StopWords, TICK } from '../../web/common/stop.js';
import { Cancellation, race } from '../../web/page/engine/cancellation.js';
import { runInPortions, submitInPortions } from '../../web/run/portions.js';
import { nextPortion } from '../../web/runtime/portions.js';

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const reasons = [[undefined, 'AbortError'], [new DOMException('late', 'TimeoutError'), 'TimeoutError'], ['enough', 'AbortError'], [null, 'AbortError'], [new TypeError('mine'), 'TypeError']];

for (const [reason, name] of reasons) {
  test(`the error of a signal has its reason: ${String(reason)}`, () => {
    const controller = new AbortController();
    const cancellation = new Cancellation({ signal: controller.signal }, 'the run');
    cancellation.check();
    controller.abort(reason);
    assert.throws(() => cancellation.check(), (error) => {
      assert.ok(error instanceof Terminated);
      assert.deepEqual([error.name, error.type, error.detail], [name, 'Terminated', 'the run was stopped: its signal is aborted']);
      assert.equal(error.cause, controller.signal.reason);
      return true;
    });
  });
}

test('terminate may be set at any time', async () => {
  const options = {};
  const cancellation = new Cancellation(options, 'the run');
  let stops = 0;
  const end = cancellation.watch(() => stops++);
  await sleep(3 * TICK);
  assert.equal(stops, 0);
  options.terminate = true;
  await sleep(5 * TICK);
  assert.ok(stops > 0);
  end();
  const seen = stops;
  await sleep(3 * TICK);
  assert.equal(stops, seen);
  assert.throws(() => cancellation.check(), { name: 'Terminated', detail: 'the run was stopped: terminate is set' });
});

test('a signal that is none is refused', () => assert.throws(() => new Cancellation({ signal: 'now' }, 'the run'), InvalidInput));

test('what comes after a stop is dropped, and a call that is raced is not waited for', async () => {
  const result = (cancellation, call, drop) => cancellation.result(call, drop);
  for (const way of [result, race]) {
    const controller = new AbortController();
    const cancellation = new Cancellation({ signal: controller.signal }, 'the run');
    const dropped = [];
    let answer;
    const call = new Promise((resolve) => { answer = resolve; });
    const got = way(cancellation, call, (late) => dropped.push(late)).catch((error) => error.name);
    controller.abort();
    if (way === race) assert.equal(await got, 'AbortError');
    answer('late');
    assert.equal(await got, 'AbortError');
    await sleep(0);
    assert.deepEqual(dropped, ['late']);
    assert.equal(await way(new Cancellation({}, 'the run'), Promise.resolve(7), () => assert.fail()), 7);
  }
});

test('a word in shared memory stops the call with its number, and no other', () => {
  const sync = new Int32Array(new SharedArrayBuffer(256));
  const lent = [];
  const stop = new Stop(5, null, (memory) => lent.push(memory));
  const [mine, other] = [new StopWords(5, true), new StopWords(4, true)];
  stop.arm(sync);
  stop.arm(sync);
  assert.deepEqual([lent, sync[STOP]], [[sync.buffer], 5]);
  other.take(sync.buffer);
  other.stop();
  assert.equal(stop.stopped, false);
  mine.stop(); // before it knows where: told as soon as it does
  mine.take(sync.buffer);
  assert.equal(sync[STOP], -5);
  assert.throws(() => stop.yieldIfDue(), Terminated);
  stop.disarm();
  assert.equal(sync[STOP], 0);
  mine.stop(); // too late for the next run
  assert.equal(sync[STOP], 0);
});

test('messages are seen at the event loop', async () => {
  const stop = new Stop(1, null, () => {});
  assert.equal(stop.yieldIfDue(), null);
  const told = new MessageChannel();
  told.port1.onmessage = () => stop.controller.abort();
  told.port2.postMessage('stop');
  const end = performance.now() + 2 * TICK;
  while (performance.now() < end);
  await assert.rejects(stop.yieldIfDue(), Terminated);
  told.port1.close();
});

test('portions grow with what is quick and shrink with what is slow', () => {
  assert.equal(nextPortion(10, 0), 40);
  assert.equal(nextPortion(10, TICK / 2), 10);
  assert.equal(nextPortion(100, 10 * TICK), 5);
  assert.equal(nextPortion(1, 100 * TICK), 1);
});

/** An executor of one step: calls of so much work, with what they did. */
function executor(works, spend = () => {}) {
  const memory = { memory: new WebAssembly.Memory({ initial: 1 }) };
  const words = new Int32Array(memory.memory.buffer);
  const done = [];
  const code = Object.fromEntries(works.map((_, n) => [`k${n}`, (args, begin, end, tid) => {
    done.push([n, args, begin, end, tid]);
    spend(end - begin);
  }]));
  const calls = works.map((work, n) => {
    words[16 + 4 * n + 3] = work; // two buffers, a parameter, the work
    return { kernel: `k${n}`, buffers: [1, 2], params: [0] };
  });
  return { made: { code, memory }, step: { calls }, done };
}

test('portions are the whole work of every call, once and in order', async () => {
  const works = [0, 1, 7, 5000];
  const { made, step, done } = executor(works);
  const plan = { table: 64, layout: { portions: null } };
  for (let run = 0; run < 2; run++) {
    done.length = 0;
    await runInPortions(made, step, plan, new Stop(1, null, () => {}));
    let at = 0;
    works.forEach((work, n) => {
      for (let begin = 0; begin < work; at++) {
        const [call, args, first, last, tid] = done[at];
        assert.deepEqual([call, args, first, tid], [n, 64 + 16 * n, begin, 0]);
        assert.ok(last > first && last <= work);
        begin = last;
      }
    });
    assert.equal(at, done.length);
    if (run) assert.ok(done.length < 10); // what is known to be quick is not cut much
  }
});

test('a stop ends a call between two portions', async () => {
  const spend = (units) => { // a millisecond each
    const end = performance.now() + units;
    while (performance.now() < end);
  };
  const { made, step, done } = executor([100_000], spend);
  const stop = new Stop(1, null, () => {});
  setTimeout(() => stop.controller.abort(), 100);
  const start = performance.now();
  await assert.rejects(runInPortions(made, step, { table: 64, layout: { portions: null } }, stop), Terminated);
  assert.ok(performance.now() - start < 2000);
  assert.ok(done.at(-1)[3] < 2000);
});

test('dispatches are submitted in portions', async () => {
  const stop = new Stop(1, null, () => {});
  const step = { portion: 1 };
  const parts = [];
  const queue = { encode: (begin, end) => parts.push([begin, end]), sent: async () => {} };
  await submitInPortions(step, 100, queue, stop);
  assert.deepEqual([parts[0], parts.at(-1)[1]], [[0, 1], 100]);
  parts.forEach(([begin], n) => assert.equal(begin, n ? parts[n - 1][1] : 0));
  stop.controller.abort();
  parts.length = 0;
  await assert.rejects(submitInPortions({ portion: 8 }, 100, queue, stop), Terminated);
  assert.equal(parts.length, 1);
});
