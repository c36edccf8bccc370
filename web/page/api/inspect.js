// `inspect`: describes a model and the memory that it needs, before it is downloaded.

import { race, Cancellation } from '../engine/cancellation.js';
import { attach, checkPlatform } from '../engine/client.js';
import { sessionOptions } from '../options/options.js';
import { modelParams, streamsOf } from '../sessions/model_origins.js';

/** @typedef {import('onnxruntime-common').InferenceSession.SessionOptions} SessionOptions */

/**
 * Makes a call about a model that opens no session.
 * @param {'inspect' | 'quantise'} call @param {string} what it does, for errors
 * @param {import('../sessions/model_origins.js').Source} model @param {SessionOptions} options
 * @param {object} [more] parameters @param {(late: unknown) => void} [drop] takes the result of a call that was cancelled
 * @returns {Promise<unknown>}
 */
export async function ask(call, what, model, options, more, drop = () => {}) {
  checkPlatform();
  const cancellation = Cancellation.of(options.signal, what);
  const settings = sessionOptions(options);
  const params = modelParams(model, settings);
  const sent = attach(null, options.worker).call(call, /** @type {never} */ ({ ...params, ...more }), { transfer: streamsOf(params), progress: settings.options.onProgress, watch: cancellation?.watch });
  return race(cancellation, sent, drop);
}

/**
 * @param {import('../sessions/model_origins.js').Source} model
 * @param {SessionOptions | null} [options] as of a session
 */
export const inspect = (model, options) => ask('inspect', 'the inspection', model, options ?? {});
