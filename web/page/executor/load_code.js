// Loads the executor and the code for the page's GPU, a separate file, when the first Program runs in the page: most pages run theirs in
// the worker (docs/design/sessions.md#runs-in-the-page).
// It shares modules with the page: scripts/build_web.mjs builds it as a function that takes them.

import * as cancellation from '../engine/cancellation.js';
import * as client from '../engine/client.js';
import * as dimNames from '../../common/dim_names.js';
import * as elements from '../../common/elements.js';
import * as errors from '../../common/errors.js';
import * as flatFeeds from '../../common/flat_feeds.js';
import { importScript } from '../../common/import_script.js';
import * as log from '../../common/log.js';
import * as protocol from '../../common/protocol.js';
import * as records from '../../common/records.js';
import * as sharedMemory from '../../common/shared_memory.js';
import * as spawn from '../../common/spawn.js';
import * as stop from '../../common/stop.js';
import * as setting from '../../gpu/setting.js';
import * as budgets from '../../run/budgets.js';
import * as gpuTensors from '../tensors/gpu_tensors.js';
import * as newTensor from '../tensors/new_tensor.js';

/** The shared modules by file. @type {Record<string, object>} */
export const SHARED = {
  'common/dim_names.js': dimNames, 'common/elements.js': elements, 'common/errors.js': errors, 'common/flat_feeds.js': flatFeeds,
  'common/log.js': log, 'common/protocol.js': protocol, 'common/records.js': records, 'common/shared_memory.js': sharedMemory,
  'common/spawn.js': spawn, 'common/stop.js': stop, 'gpu/setting.js': setting, 'page/engine/cancellation.js': cancellation,
  'page/engine/client.js': client, 'page/tensors/gpu_tensors.js': gpuTensors, 'page/tensors/new_tensor.js': newTensor, 'run/budgets.js': budgets,
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
  const { executor } = await client.engineFiles();
  /** @type {import('../../common/import_script.js').Sharing<ExecutorCode>} */
  const module = await importScript(executor);
  return module.default((file) => SHARED[file]);
}
