// Loads the code that trains models, a separate file, when a page first calls TrainingSession.create.
// It shares modules with the page: scripts/build_web.mjs builds it as a function that takes them.

import { importScript } from '../../common/import_script.js';
import * as inferenceSession from '../api/inference_session.js';
import { engineFiles } from '../engine/client.js';
import { SHARED as WITH_EXECUTOR } from '../executor/load_code.js';
import * as options from '../options/options.js';
import * as modelOrigins from '../sessions/model_origins.js';

/** The shared modules by file. @type {Record<string, object>} */
export const SHARED = {
  ...WITH_EXECUTOR, 'page/api/inference_session.js': inferenceSession, 'page/options/options.js': options,
  'page/sessions/model_origins.js': modelOrigins,
};

/** @returns {Promise<typeof import('./entry.js')>} */
export async function trainingCode() {
  const { training } = await engineFiles();
  return (await importScript(training)).default((/** @type {string} */ file) => SHARED[file]);
}
