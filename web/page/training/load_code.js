// Loads the code that trains models, runs them with adapters and quantises them, a separate file, when a page first asks for that.
// It shares modules with the page: scripts/build_web.mjs builds it as a function that takes them.

import { Tensor } from 'onnxruntime-common';
import { importScript } from '../../common/import_script.js';
import { backend, InferenceSession } from '../api/inference_session.js';
import { ask } from '../api/inspect.js';
import { platform } from '../../common/platform.js';
import { engineFiles } from '../engine/client.js';
import { SHARED } from '../executor/load_code.js';
import { runOptions, SESSION } from '../options/options.js';
import { withAddress } from '../sessions/model_origins.js';
import { snapshot } from '../tensors/wire_tensors.js';

/** What it needs of the page besides these modules. */
const parts = { platform, backend, InferenceSession, Tensor, ask, runOptions, snapshot, withAddress, SESSION };

/** @returns {Promise<typeof import('./entry.js')>} */
async function load() {
  /** @typedef {import('../../common/import_script.js').Sharing<typeof import('./entry.js')>} Code */
  return /** @type {Code} */ (await importScript((await engineFiles()).training)).default((file) => SHARED[file]);
}

/** A function of that code, which is loaded for the first call. @param {'create' | 'quantize' | 'static' | 'adapt'} name @returns {(...given: unknown[]) => Promise<unknown>} */
const loaded = (name) => async (...given) => (/** @type {Record<string, Function>} */ (/** @type {unknown} */ (await load())))[name](parts, ...given);

export const create = loaded('create');
export const quantize = loaded('quantize');
export const quantizeStatic = loaded('static');
backend.adapt = /** @type {typeof backend.adapt} */ (loaded('adapt'));
