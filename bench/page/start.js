// Measures a visit: from the import of a package to a session, and to the first result of a model.

import { difference, expected, Feeds, fetchBuffer } from './model.js';
import { OrtSession } from './ort.js';

const PACKAGES = { ours: '/dist/ort.mjs', peer: '/peer/ort.wasm.bundle.min.mjs' };

/**
 * @param {'ours' | 'peer'} which @param {import('./model.js').ModelInfo} info
 * @param {import('onnxruntime-common').InferenceSession.ExecutionProviderConfig[]} [executionProviders]
 * @returns {Promise<{ ready: number, milliseconds: number, error: number | string, phases: Record<string, number>, used: string }>} error: of the
 *   result; phases: of compiling; used: the first provider
 */
async function visit(which, info, executionProviders) {
  const feeds = new Feeds(info, await fetchBuffer(info.data));
  performance.mark('pyruntime package requested');
  const begin = performance.now();
  const ort = await import(PACKAGES[which]);
  ort.env.wasm.numThreads = 1;
  performance.mark('pyruntime package loaded');
  const session = await ort.InferenceSession.create(info.model, { logSeverityLevel: 3, ...executionProviders && { executionProviders } });
  const ready = performance.now() - begin;
  performance.mark('pyruntime session created');
  const outputs = await new OrtSession(ort, session, feeds).run();
  const milliseconds = performance.now() - begin;
  performance.mark('pyruntime first run done');
  const { phases, providers } = which === 'ours' ? await session.explain() : { phases: {}, providers: { used: [''] } };
  return { ready, milliseconds, error: info.check ? 0 : difference(outputs, await expected(info)), phases, used: providers.used[0] };
}

Object.assign(globalThis, { bench: { visit } });
