// The worker boundary: answers reach their calls, errors cross whole, and nothing waits for a worker that has ended.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as errors from '../../web/common/errors.js';
import { answer, Caller } from '../../web/common/protocol.js';
import { refusal, sentence } from './sentences.mjs';

const { fromPayload, outOfRange, PyRuntimeError, SessionFailed, toPayload } = errors;
const tree = Object.values(errors).filter((member) => (member === PyRuntimeError || member.prototype instanceof PyRuntimeError)
  && member.prototype.type === member.name); // UnsupportedSizes crosses as what it means to callers

for (const type of tree) {
  test(`a ${type.name} crosses whole`, () => {
    const error = new type('it is odd', { node: 'Conv "c"', hint: 'try another' });
    const there = fromPayload(structuredClone(toPayload(error)));
    assert.equal(there.constructor, type);
    assert.deepEqual([there.name, sentence(there), there.node, there.hint], [type.name, 'Conv "c": it is odd (try another)', 'Conv "c"', 'try another']);
  });
}

for (const [thrown, message] of [[new TypeError('no'), 'TypeError: no'], ['text', 'text'], [undefined, 'undefined']]) {
  test(`what is none of ours keeps its name: ${message}`, () => {
    const { type, message: found } = fromPayload(toPayload(thrown));
    assert.deepEqual([type, found], ['PyRuntimeError', message]);
  });
}

test('an index is out of range of so many elements', () => {
  assert.equal(sentence(outOfRange('Gather "g"', -3n, 1)), 'Gather "g": index -3 is out of range for 1 element');
  assert.equal(sentence(outOfRange('', 2, 2)), 'index 2 is out of range for 2 elements');
});

/** A page and a worker joined by copies of messages. */
function joined(handlers) {
  const [page, worker] = [{}, {}];
  const sender = (to) => (message, transfer = []) => {
    const copy = structuredClone(message, { transfer });
    queueMicrotask(() => to.onmessage({ data: copy }));
  };
  page.postMessage = sender(worker);
  worker.postMessage = sender(page);
  answer(worker, handlers);
  return new Caller(page);
}

test('answers find their calls in any order', async () => {
  const waiting = [];
  const caller = joined({ run: ({ n }) => new Promise((resolve) => waiting.push(() => resolve({ result: n }))) });
  const calls = [1, 2, 3].map((n) => caller.call('run', { n }));
  await new Promise(setImmediate);
  for (const resolve of waiting.reverse()) resolve();
  assert.deepEqual(await Promise.all(calls), [1, 2, 3]);
  assert.equal(caller.pending.size, 0);
});

test('progress comes before the answer, and an error in its place', async () => {
  const caller = joined({
    create: async (_, progress) => {
      progress({ phase: 'init', loaded: 0, total: 1 });
      throw new errors.ShapeError('no', { node: 'Add "a"' });
    },
  });
  const told = [];
  await assert.rejects(caller.call('create', {}, { progress: (step) => told.push(step.phase) }), { type: 'ShapeError', node: 'Add "a"' });
  assert.deepEqual(told, ['init']);
});

test('a call that the worker does not know is answered', async () => {
  await assert.rejects(joined({}).call('unheard', null), PyRuntimeError);
});

test('what cannot be sent is told at once', async () => {
  const caller = joined({});
  await assert.rejects(caller.call('run', { feeds: () => {} }), { name: 'InvalidInput', message: /cannot send the call to the worker/ });
  assert.equal(caller.pending.size, 0);
});

test('buffers that are listed move', async () => {
  const caller = joined({ run: ({ bytes }) => ({ result: bytes, transfer: [bytes.buffer] }) });
  const bytes = Uint8Array.of(1, 2);
  const back = await caller.call('run', { bytes }, { transfer: [bytes.buffer] });
  assert.deepEqual([bytes.length, [...back]], [0, [1, 2]]);
});

test('a worker that is gone fails all calls, and late answers do nothing', async () => {
  const caller = joined({ run: () => new Promise(() => {}) });
  const waiting = caller.call('run', {});
  caller.fail('it was ended', 'create the session again');
  const told = refusal('SessionFailed', 'the worker is gone: it was ended (create the session again)');
  await assert.rejects(waiting, told);
  await assert.rejects(caller.call('run', {}), told);
  caller.receive({ id: 1, result: 3 });
  assert.ok(caller.failure() instanceof SessionFailed);
});

test('what is in flight can fail with an error of its own', async () => {
  const caller = joined({ run: () => new Promise(() => {}) });
  const waiting = caller.call('run', {});
  caller.fail('engine.zip is missing', '', new SessionFailed('cannot load engine.zip'));
  await assert.rejects(waiting, { detail: 'cannot load engine.zip' });
  await assert.rejects(caller.call('run', {}), { detail: 'the worker is gone: engine.zip is missing' });
});

test('a call is stopped once, and others are not', async () => {
  const stops = [];
  const caller = joined({ run: (_, progress, stop) => new Promise((resolve, reject) => {
    if (!stop) return;
    stops.push(stop);
    stop.controller.signal.addEventListener('abort', () => reject(new errors.Terminated('no')));
  }) });
  let sent = 0;
  const { postMessage } = caller.worker;
  caller.worker.postMessage = (message, transfer) => { sent++; postMessage(message, transfer); };
  const told = [];
  const run = (watch) => caller.call('run', {}, { watch }).catch((error) => told.push(error.name));
  run(undefined);
  let ended = 0;
  const [first] = [1, 2].map(() => run((stop) => { stops.push(stop); return () => ended++; }));
  await new Promise(setImmediate);
  const [stop, other] = stops.filter((each) => typeof each === 'function');
  stop();
  stop();
  await first;
  stop(); // over
  assert.deepEqual([told, ended, sent, caller.pending.size], [['Terminated'], 1, 4, 2]);
  other();
  await new Promise(setImmediate);
  assert.deepEqual([told.length, caller.pending.size], [2, 1]);
});
