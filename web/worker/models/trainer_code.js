// Loads the code of sessions that train, a separate file, into the worker.
// It shares modules with the worker: scripts/build_web.mjs builds it as a function that takes them.

import * as errors from '../../common/errors.js';
import { importScript } from '../../common/import_script.js';
import * as storage from '../../gpu/storage.js';
import * as modelFiles from './model_files.js';

/** The shared modules by file. @type {Record<string, object>} */
export const SHARED = { 'common/errors.js': errors, 'gpu/storage.js': storage, 'worker/models/model_files.js': modelFiles };

/** @param {string} address of training.mjs @returns {Promise<typeof import('./trainer_entry.js')>} */
export const trainingCode = async (address) => (await importScript(address)).inWorker((/** @type {string} */ file) => SHARED[file]);
