// Kept Programs in the place of Python, which starts when something else is asked for.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CachedCompiler } from '../../web/worker/programs/cached_compiler.js';

const KEPT = { info: '{}', needs: '{}', programs: new Map() };

test('Python starts once, whoever asks, and what comes after the end goes', async () => {
  let opened = 0;
  let gone = 0;
  const python = { specialise: async () => 'made' };
  const kept = new CachedCompiler(KEPT, async () => ({ opened: opened += 1, python, proxy: { destroy: () => { gone += 1; } } }));
  const both = [kept.specialise(null, {}, null), kept.specialise(null, {}, null)];
  kept.proxy.destroy();
  assert.deepEqual(await Promise.all(both), ['made', 'made']);
  assert.deepEqual([opened, gone], [1, 1]);
});

test('after a failure it is tried again', async () => {
  let tries = 0;
  const kept = new CachedCompiler(KEPT, async () => {
    if (!tries++) throw new Error('no network');
    return { python: {}, proxy: {} };
  });
  await assert.rejects(kept.python(), /no network/);
  assert.ok(await kept.python());
});
