// Loads the code of sessions that train, a separate file, into the worker.
// It shares modules with the worker: scripts/build_web.mjs builds it as a function that takes them.

import { InvalidInput, SessionFailed } from '../../common/errors.js';
import { importScript } from '../../common/import_script.js';
import { fromGpuStorage } from '../../gpu/storage.js';
import { readerOf } from '../files/reader.js';

/** What it uses of the shared modules, by file. @type {Record<string, object>} */
export const SHARED = { 'common/errors.js': { InvalidInput, SessionFailed }, 'gpu/storage.js': { fromGpuStorage }, 'worker/files/reader.js': { readerOf } };

/** @param {string} address of training.mjs @returns {Promise<typeof import('./trainer.js')>} */
export async function trainingCode(address) {
  /** @type {{ inWorker(shared: (file: string) => object): typeof import('./trainer.js') }} */
  const { inWorker } = await importScript(address);
  return inWorker((file) => SHARED[file]);
}
