// Measures the time from a cold start to the first result, in phases that the package reports.

import { Feeds, fetchBuffer, typed } from './model.js';
import { OrtSession } from './ort.js';

/** @typedef {import('./model.js').ModelInfo} ModelInfo */

/** A tensor of zeros, free dims 1. @param {any} ort @param {any} info */
function zeros(ort, info) {
  const dims = info.shape.map((/** @type {unknown} */ dim) => (typeof dim === 'number' ? dim : 1));
  const count = dims.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
  const width = typed(info.type, new ArrayBuffer(8)).BYTES_PER_ELEMENT;
  return new ort.Tensor(info.type, typed(info.type, new ArrayBuffer(count * width)), dims);
}

/**
 * The first run, with the model's feeds if there are any.
 * @param {any} ort @param {any} session @param {ModelInfo | null} info
 */
async function run(ort, session, info) {
  if (!info) return session.run(Object.fromEntries(session.inputMetadata.map((/** @type {any} */ input) => [input.name, zeros(ort, input)])));
  return new OrtSession(ort, session, new Feeds(info, await fetchBuffer(info.data))).run();
}

/**
 * @param {string} address @param {ModelInfo | null} info
 * @returns {Promise<Record<string, number | Record<string, number>>>} milliseconds
 */
export async function compile(address, info) {
  const ort = /** @type {any} */ (await import('pyruntime'));
  ort.env.wasm.numThreads = 1;
  const begin = performance.now();
  await ort.boot();
  const boot = performance.now() - begin;
  const session = await ort.InferenceSession.create(address);
  const created = performance.now();
  await run(ort, session, info);
  const first = performance.now() - created;
  const { compile: compiled, init } = session.timings;
  return { boot, compile: compiled, init, first, phases: (await session.explain()).phases };
}
