// `inspect`: what a model is and what it will take, told by the worker before it is downloaded.

import { attach, checkPlatform, threadCount } from './client.js';
import { sessionOptions, workerEnv } from './options.js';
import { externalFile, origin, streamsOf } from './origins.js';
import { Stopper } from './stopper.js';

/**
 * @param {import('./origins.js').Given} model
 * @param {import('onnxruntime-common').InferenceSession.SessionOptions} [options] as of a session
 */
export async function inspect(model, options = {}) {
  checkPlatform();
  const stopper = options.signal ? new Stopper({ signal: options.signal }, 'the inspection') : null;
  stopper?.check();
  const { given, options: wanted, limits, said } = sessionOptions(options);
  const from = origin(model);
  const params = {
    model: from,
    external: (given.externalData ?? []).map((/** @type {import('./origins.js').ExternalFile} */ file) => externalFile(file, from)),
    threads: threadCount(given.intraOpNumThreads, given.preset, said),
    options: wanted,
    limits,
    said,
    env: workerEnv(given.preset),
  };
  const sent = attach().call('inspect', params, { transfer: streamsOf(params), progress: given.onProgress, watch: stopper?.watch });
  return stopper ? stopper.race(sent, () => {}) : sent;
}
