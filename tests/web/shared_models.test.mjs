// Which open models a new session shares.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Model } from '../../web/session/model.js';
import { openShared } from '../../web/worker/models/shared_models.js';

const HOST = { threads: 1, shared: false, named: ['wasm'], whyNotGpu: '' };
const source = ({ size = 4 << 20, hash = 'a', gpu = null, candidate, customised = false, training, ...host } = {}, others = []) => ({
  files: new Map([['', { size, hash: async () => hash, close: async () => {} }]]), options: {}, gpu, candidate, others: () => others,
  params: { options: { training }, limits: {} }, interpreter: { customised }, host: { ...HOST, ...host },
});

for (const [name, asked, open, isShared] of [
  ['the same model', {}, {}, true],
  ['a small one', { size: 100 }, { size: 100 }, false],
  ['other weights', {}, { hash: 'b' }, false],
  ['other providers', {}, { named: ['auto'] }, false],
  ['another reason', {}, { whyNotGpu: 'no adapter' }, false],
  ['one on the GPU', {}, { gpu: {} }, false],
  ['one whose provider is measured', { candidate: {} }, {}, false],
  ['one of a session that trains', { training: {} }, {}, false],
  ['one opened before the page changed Python', { customised: true }, {}, false],
]) {
  test(`${name} is ${isShared ? '' : 'not '}shared`, async () => {
    const opened = { model: Object.create(Model.prototype), source: source(open) };
    assert.equal((await openShared(source(asked, [opened])))?.model, isShared ? opened.model : undefined);
    opened.trial = {};
    assert.equal(await openShared(source(asked, [opened])), null, 'it may move to the GPU');
  });
}
