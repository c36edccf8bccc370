// Loads the code that trains models, a separate file, when a page first calls TrainingSession.create.
// It shares modules with the page: scripts/build_web.mjs builds it as a function that takes them.

import { importScript } from '../../common/import_script.js';
import { backend, InferenceSession } from '../api/inference_session.js';
import { engineFiles } from '../engine/client.js';
import { SHARED } from '../executor/load_code.js';
import { runOptions } from '../options/options.js';
import { withAddress } from '../sessions/model_origins.js';

/** What it needs of the page besides these modules. */
const parts = { backend, InferenceSession, runOptions, withAddress };

/** @param {any} model @param {Record<string, any>} [options] */
export async function create(model, options) {
  const { training } = await engineFiles();
  /** @type {typeof import('./entry.js')} */
  const code = (await importScript(training)).default((/** @type {keyof typeof SHARED} */ file) => SHARED[file]);
  return code.create(parts, model, options);
}
