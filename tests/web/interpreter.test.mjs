// The start of Python, successful or not: who is notified, and in which order.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SessionFailed } from '../../web/common/errors.js';
import { Interpreter } from '../../web/worker/interpreter/interpreter.js';
import { Python } from '../../web/worker/interpreter/python.js';

/** An interpreter whose files are there, and what `boot` stands for. */
function made(boot) {
  Python.boot = boot;
  return Object.assign(new Interpreter(), { assets: {} });
}

test('nobody knows where its files are', async () => {
  await assert.rejects(new Interpreter().start(), { type: 'SessionFailed', detail: 'the engine is not started' });
});

test('the page is told of a failure before all who wait, and once', async () => {
  let boots = 0;
  const interpreter = made(async () => {
    boots++;
    throw new SessionFailed('cannot load engine.zip');
  });
  const told = [];
  interpreter.fail = async ({ detail }) => {
    for (let n = 0; n < 10; n++) await null; // a message is on its way only some promises later
    told.push(`page: ${detail}`);
  };
  const wait = (name) => interpreter.start().catch(({ detail }) => told.push(`${name}: ${detail}`));
  await Promise.all([wait('first'), wait('second')]);
  await wait('later');
  assert.deepEqual(told, ['page', 'first', 'second', 'later'].map((name) => `${name}: cannot load engine.zip`));
  assert.equal(boots, 1);
});

test('all who wait are told of its progress, and nobody else', async () => {
  const python = {};
  let report = () => {};
  const interpreter = made((_, early, progress) => new Promise((resolve) => {
    report = progress;
    setTimeout(resolve, 0, python);
  }));
  const told = [[], []];
  const waiting = told.map((list) => interpreter.start(({ loaded, total }) => list.push([loaded, total])));
  report(1, 3);
  assert.deepEqual(await Promise.all(waiting), [python, python]);
  report(2, 3);
  assert.deepEqual(told, [[[1, 3]], [[1, 3]]]);
});
