// Loads what few workers need, a separate file: the code of sessions that train, of `quantize`, of providers that users add, and of
// workers for several pages.
// It shares modules with the worker: scripts/build_web.mjs builds it as a function that takes them.

import { evaluateAll } from '../../common/dims.js';
import { viewOf } from '../../common/elements.js';
import { ExecutionError, InvalidInput, PyRuntimeError, SessionFailed, Terminated } from '../../common/errors.js';
import { importScript } from '../../common/import_script.js';
import { during, warn } from '../../common/log.js';
import { fromGpuStorage } from '../../gpu/storage.js';
import { readerOf } from '../files/reader.js';
import { beside, closeAll, openFiles, ownFile } from './model_files.js';

/** What it uses of the shared modules, by file. @type {Record<string, object>} */
export const SHARED = {
  'common/dims.js': { evaluateAll }, 'common/elements.js': { viewOf },
  'common/errors.js': { ExecutionError, InvalidInput, PyRuntimeError, SessionFailed, Terminated },
  'common/import_script.js': { importScript }, 'common/log.js': { during, warn }, 'gpu/storage.js': { fromGpuStorage }, 'worker/files/reader.js': { readerOf },
  'worker/models/model_files.js': { beside, closeAll, openFiles, ownFile },
};

/** One instance. @type {typeof import('./rare_code.js') | undefined} */
let code;

/** @param {{ assets: import('../../common/protocol.js').Assets | null }} known the address of training.mjs */
export async function trainingCode({ assets }) {
  /** @type {{ inWorker(shared: (file: string) => object): typeof import('./rare_code.js') }} */
  const module = await importScript(/** @type {import('../../common/protocol.js').Assets} */ (assets).training);
  return code ??= module.inWorker((file) => SHARED[file]);
}

/** The registry of providers that users add. @param {import('../interpreter/interpreter.js').Interpreter} interpreter */
export async function addedProviders(interpreter) {
  const { AddedProviders } = await trainingCode(interpreter);
  return interpreter.added ??= new AddedProviders(interpreter);
}
