// Measures how long a page waits for a model: from `create` to the first result. The package is imported before.

import { difference, expected, Feeds, fetchBuffer } from './model.js';
import { OrtSession } from './ort.js';

const PACKAGES = { ours: '/dist/ort.mjs', peer: '/peer/ort.wasm.bundle.min.mjs' };
const PROGRAMS = 'pyruntime-programs';

/**
 * @param {'ours' | 'peer'} which @param {import('./model.js').ModelInfo} info @param {'url' | 'buffer'} source
 * @returns {Promise<{ milliseconds: number, error: number | string, phases: Record<string, number> }>} error: of the result; phases: of compiling
 */
async function ready(which, info, source) {
  const feeds = new Feeds(info, await fetchBuffer(info.data));
  const model = source === 'buffer' ? new Uint8Array(await fetchBuffer(info.model)) : info.model;
  const ort = await import(PACKAGES[which]);
  ort.env.wasm.numThreads = 1;
  performance.mark('pyruntime package requested');
  const begin = performance.now();
  const session = await ort.InferenceSession.create(model, { logSeverityLevel: 3 });
  performance.mark('pyruntime session created');
  const outputs = await new OrtSession(ort, session, feeds).run();
  const milliseconds = performance.now() - begin;
  performance.mark('pyruntime first run done');
  const phases = which === 'ours' ? (await session.explain()).phases : {};
  return { milliseconds, error: info.check ? 0 : difference(outputs, await expected(info)), phases };
}

/** Fills the browser's caches of both packages' files and code. @param {string[]} models the first: of one addition */
async function fillCaches([model, ...others]) {
  for (const address of Object.values(PACKAGES)) {
    const ort = await import(address);
    ort.env.wasm.numThreads = 1;
    const session = await ort.InferenceSession.create(model, { logSeverityLevel: 3 });
    await session.run({ x: new ort.Tensor('float32', new Float32Array(4), [4]) });
    for (const other of others) await ort.InferenceSession.create(other, { logSeverityLevel: 3 });
  }
}

/** Waits until the browser has so many compiled Programs for later visits. @param {number} count */
async function kept(count) {
  const cache = await caches.open(PROGRAMS);
  while ((await cache.keys()).length < count) await new Promise((done) => setTimeout(done, 100));
}

/** Forgets all Programs but the first, so that the profile has one of another model. */
async function forgetPrograms() {
  const cache = await caches.open(PROGRAMS);
  for (const request of (await cache.keys()).slice(1)) await cache.delete(request);
}

Object.assign(globalThis, { bench: { ready, fillCaches, kept, forgetPrograms } });
