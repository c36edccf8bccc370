// Large models go to the worker in parts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sessionOptions } from '../../web/page/options/options.js';
import { modelParams } from '../../web/page/sessions/model_origins.js';
import { receiveParts } from '../../web/worker/files/moving_file.js';

const SIZE = 33 * 2 ** 20 + 5;
const made = () => new Uint8Array(SIZE).map((_, n) => n % 251);

function originOf(bytes) {
  const { model, fetchPort } = modelParams(bytes, sessionOptions({}), false);
  fetchPort?.close();
  return model;
}

test('all bytes of a view arrive, and the page keeps them', async () => {
  const whole = made();
  const file = await receiveParts(originOf(whole.subarray(3)));
  assert.ok(Buffer.from(file.read(0, file.size)).equals(Buffer.from(whole.subarray(3))));
  assert.equal(whole.length, SIZE);
});

test('bytes that the page transfers meanwhile are refused', async () => {
  const bytes = made();
  const received = receiveParts(originOf(bytes));
  structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
  await assert.rejects(received, { name: 'InvalidModel', message: /detached/ });
});

test('small, shared and exported ones are sent at once', () => {
  const program = made();
  program.set(new TextEncoder().encode('pyrt'));
  for (const bytes of [new Uint8Array(9), new Uint8Array(new SharedArrayBuffer(SIZE)), program]) assert.ok('bytes' in originOf(bytes));
});
