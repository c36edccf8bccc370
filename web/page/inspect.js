// `inspect`: what a model is and what it will take, told by the worker before it is downloaded.

import { attach, checkPlatform, threadCount } from './client.js';
import { sessionOptions, workerEnv } from './options.js';
import { externalFile, origin } from './origins.js';
import { Stopper } from './stopper.js';

/**
 * @param {string | Uint8Array | ArrayBufferLike | Blob} model
 * @param {import('onnxruntime-common').InferenceSession.SessionOptions} [options] as of a session
 */
export async function inspect(model, options = {}) {
  checkPlatform();
  const stopper = options.signal ? new Stopper({ signal: options.signal }, 'the inspection') : null;
  stopper?.check();
  const { given, options: wanted, limits, said } = sessionOptions(options);
  const params = {
    model: origin(model),
    external: (given.externalData ?? []).map((/** @type {import('./origins.js').ExternalFile} */ file) => externalFile(file, /** @type {string} */ (model))),
    threads: threadCount(given.intraOpNumThreads, given.preset, said),
    options: wanted,
    limits,
    said,
    env: workerEnv(given.preset),
  };
  const sent = attach().call('inspect', params, { progress: given.onProgress, watch: stopper?.watch });
  return stopper ? stopper.race(sent, () => {}) : sent;
}
