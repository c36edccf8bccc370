// Loads the code of sessions that train, and of `quantize`, a separate file, into the worker.
// It shares modules with the worker: scripts/build_web.mjs builds it as a function that takes them.

import { InvalidInput, SessionFailed } from '../../common/errors.js';
import { importScript } from '../../common/import_script.js';
import { fromGpuStorage } from '../../gpu/storage.js';
import { readerOf } from '../files/reader.js';
import { beside, closeAll, openFiles, ownFile } from './model_files.js';

/** What it uses of the shared modules, by file. @type {Record<string, object>} */
export const SHARED = {
  'common/errors.js': { InvalidInput, SessionFailed }, 'gpu/storage.js': { fromGpuStorage }, 'worker/files/reader.js': { readerOf },
  'worker/models/model_files.js': { beside, closeAll, openFiles, ownFile },
};

/** One instance. @type {typeof import('./rare_code.js') | undefined} */
let code;

/** @param {import('../interpreter/interpreter.js').Interpreter} interpreter that knows the address of training.mjs */
export async function trainingCode({ assets }) {
  /** @type {{ inWorker(shared: (file: string) => object): typeof import('./rare_code.js') }} */
  const module = await importScript(/** @type {import('../../common/protocol.js').Assets} */ (assets).training);
  return code ??= module.inWorker((file) => SHARED[file]);
}
