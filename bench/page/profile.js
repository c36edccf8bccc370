// Kernel times of our runs of a model.

import { Feeds, fetchBuffer } from './model.js';
import { OrtSession } from './ort.js';

/**
 * @param {import('./model.js').ModelInfo} info @param {number} runs
 * @returns {Promise<[import('pyruntime').KernelTiming[][], readonly object[]]>} of each run; what became of the nodes
 */
export async function profile(info, runs) {
  const ort = await import('pyruntime');
  ort.env.wasm.numThreads = 1;
  const [model, data] = await Promise.all([fetchBuffer(info.model), fetchBuffer(info.data)]);
  const session = await ort.InferenceSession.create(new Uint8Array(model));
  const fed = new OrtSession(ort, session, new Feeds(info, data));
  for (let i = 0; i < 3; i++) await fed.run();
  const found = [];
  for (let i = 0; i < runs; i++) found.push(await session.profile(fed.kept));
  return [found, (await session.explain()).nodes];
}
