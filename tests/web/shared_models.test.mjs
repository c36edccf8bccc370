// Which open models a new session shares.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Model } from '../../web/session/model.js';
import { sharedModel } from '../../web/worker/models/shared_models.js';

const HOST = { threads: 1, shared: false, named: ['wasm'], whyNotGpu: '' };
const source = ({ size = 4 << 20, hash = 'a', gpu = null, ...host } = {}) => (
  { files: new Map([['', { size, hash: async () => hash }]]), options: {}, gpu, host: { ...HOST, ...host } });

for (const [name, asked, open, isShared] of [
  ['the same model', {}, {}, true],
  ['a small one', { size: 100 }, { size: 100 }, false],
  ['other weights', {}, { hash: 'b' }, false],
  ['other providers', {}, { named: ['auto'] }, false],
  ['another reason', {}, { whyNotGpu: 'no adapter' }, false],
  ['one on the GPU', {}, { gpu: {} }, false],
]) {
  test(`${name} is ${isShared ? '' : 'not '}shared`, async () => {
    const opened = { model: Object.create(Model.prototype), source: source(open) };
    assert.equal(await sharedModel(source(asked), () => [opened]), isShared ? opened : undefined);
    opened.trial = {};
    assert.equal(await sharedModel(source(asked), () => [opened]), undefined, 'it may move to the GPU');
  });
}
