// Tunes a model, and returns the result.

import { Feeds, fetchBuffer } from './model.js';
import { OrtSession } from './ort.js';

/**
 * @param {import('./model.js').ModelInfo} info @param {number} seconds @param {import('pyruntime').InferenceSession.SessionOptions['executionProviders']} providers
 * @returns {Promise<import('pyruntime').Tuned>}
 */
export async function tune(info, seconds, providers) {
  const ort = await import('pyruntime');
  ort.env.wasm.numThreads = 1;
  const [model, data] = await Promise.all([fetchBuffer(info.model), fetchBuffer(info.data)]);
  const session = await ort.InferenceSession.create(new Uint8Array(model), { executionProviders: providers });
  return session.tune(new OrtSession(ort, session, new Feeds(info, data)).kept, { seconds });
}
