// Loads the executor and the code for the page's GPU, a separate file, when the first Program runs in the page: most pages run theirs in
// the worker (docs/design/sessions.md#runs-in-the-page).
// It shares modules with the page: scripts/build_web.mjs builds it as a function that takes them.

import { HINT } from '../engine/assets.js';
import * as client from '../engine/client.js';
import * as dimNames from '../../common/dim_names.js';
import * as elements from '../../common/elements.js';
import * as errors from '../../common/errors.js';
import * as flatFeeds from '../../common/flat_feeds.js';
import * as log from '../../common/log.js';
import * as protocol from '../../common/protocol.js';
import * as records from '../../common/records.js';
import * as sharedMemory from '../../common/shared_memory.js';
import * as stop from '../../common/stop.js';
import * as setting from '../../gpu/setting.js';
import * as budgets from '../../run/budgets.js';
import * as gpuTensors from '../tensors/gpu_tensors.js';

/** The shared modules by file. @type {Record<string, object>} */
export const SHARED = {
  'common/dim_names.js': dimNames, 'common/elements.js': elements, 'common/errors.js': errors, 'common/flat_feeds.js': flatFeeds,
  'common/log.js': log, 'common/protocol.js': protocol, 'common/records.js': records, 'common/shared_memory.js': sharedMemory,
  'common/stop.js': stop, 'gpu/setting.js': setting, 'page/engine/client.js': client, 'page/tensors/gpu_tensors.js': gpuTensors,
  'run/budgets.js': budgets,
};

/** @typedef {typeof import('./entry.js')} ExecutorCode */

/** @type {Promise<ExecutorCode> | null} */
let code = null;

/** @returns {Promise<ExecutorCode>} */
export function executorCode() {
  code ??= load().catch((error) => {
    code = null;
    throw error;
  });
  return code;
}

/** The code, if it is loaded. @returns {Promise<ExecutorCode | null>} */
export const loadedExecutorCode = async () => code;

async function load() {
  const { executor: address } = await client.engineFiles();
  // With a constant address bundlers would make a chunk, which rollup's single-file scripts cannot have.
  const built = await import(/* webpackIgnore: true */ /* @vite-ignore */ address).catch((cause) => {
    throw new errors.SessionFailed(`the executor for the page could not be loaded: ${cause.message}`, { hint: HINT, cause });
  });
  return built.default((/** @type {string} */ file) => SHARED[file]);
}
