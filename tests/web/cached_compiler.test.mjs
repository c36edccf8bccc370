// Cached Programs used instead of Python, which starts only when something else is needed.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CachedCompiler } from '../../web/worker/programs/cached_compiler.js';

const BUNDLE = { info: '{}', needs: '{}', programs: new Map() };

test('Python starts once for all callers, and ends after them', async () => {
  let opened = 0;
  let destroyed = 0;
  const cached = new CachedCompiler(BUNDLE, async () => {
    opened++;
    return { specialise: async () => 'made', destroy: () => { destroyed++; } };
  });
  const both = [cached.specialise({}, null), cached.specialise({}, null)];
  cached.destroy();
  assert.deepEqual(await Promise.all(both), ['made', 'made']);
  assert.deepEqual([opened, destroyed], [1, 1]);
});

test('after a failure it is tried again', async () => {
  let tries = 0;
  const cached = new CachedCompiler(BUNDLE, async () => {
    if (!tries++) throw new Error('no network');
    return {};
  });
  await assert.rejects(cached.start(), /no network/);
  assert.ok(await cached.start());
});

test('Python, once it runs, tells what Programs depend on', async () => {
  const cached = new CachedCompiler({ ...BUNDLE, needs: 'old' }, async () => ({ needs: 'new' }));
  assert.equal(cached.needs, 'old');
  await cached.start();
  assert.equal(cached.needs, 'new');
});
