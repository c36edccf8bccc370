// `inspect`: what a model is and what it will take, told by the worker before it is downloaded.

import { attach, checkPlatform, threadCount } from '../engine/client.js';
import { sessionOptions } from '../options/options.js';
import { externalFile, origin, streamsOf } from '../sessions/model_origins.js';
import { Cancellation } from '../engine/cancellation.js';

/**
 * @param {import('../sessions/model_origins.js').Given} model
 * @param {import('onnxruntime-common').InferenceSession.SessionOptions} [options] as of a session
 */
export async function inspect(model, options = {}) {
  checkPlatform();
  const cancellation = options.signal ? new Cancellation({ signal: options.signal }, 'the inspection') : null;
  cancellation?.check();
  const { given, params: settings } = sessionOptions(options);
  const from = origin(model);
  const params = {
    model: from,
    external: (given.externalData ?? []).map((/** @type {import('../sessions/model_origins.js').ExternalFile} */ file) => externalFile(file, from)),
    threads: threadCount(given.intraOpNumThreads, given.preset, settings.logOptions),
    ...settings,
  };
  const sent = attach().call('inspect', params, { transfer: streamsOf(params), progress: given.onProgress, watch: cancellation?.watch });
  return cancellation ? cancellation.race(sent, () => {}) : sent;
}
