// `inspect`: describes a model and the memory that it needs, before it is downloaded.

import { race, Cancellation } from '../engine/cancellation.js';
import { attach, checkPlatform } from '../engine/client.js';
import { sessionOptions } from '../options/options.js';
import { modelParams, streamsOf } from '../sessions/model_origins.js';

/**
 * @param {import('../sessions/model_origins.js').Source} model
 * @param {import('onnxruntime-common').InferenceSession.SessionOptions | null} [options] as of a session
 */
export async function inspect(model, options) {
  checkPlatform();
  options ??= {};
  const cancellation = Cancellation.of(options.signal, 'the inspection');
  const settings = sessionOptions(options);
  const params = modelParams(model, settings);
  const progress = settings.options.onProgress;
  const sent = attach().call('inspect', params, { transfer: streamsOf(params), progress, watch: cancellation?.watch });
  return race(cancellation, sent, () => {});
}
