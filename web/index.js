// The public API, which is onnxruntime-web's. An import starts nothing; the first session starts the worker.

import { env } from 'onnxruntime-common';
import { platform } from './common/platform.js';
import { attach, ofAll, shutdown } from './page/engine/client.js';
import { pageTensors } from './page/gpu/page_gpu.js';
import { droppedSessions } from './page/sessions/handler.js';
import { droppedTensors } from './page/tensors/gpu_tensors.js';
import { budgets } from './run/budgets.js';
import { InvalidInput } from './common/errors.js';
import { optionsOf } from './common/records.js';
import { registerProviders } from './page/api/inference_session.js';
import * as ort from './index.js';

export * from 'onnxruntime-common';
export {
  DeviceLost, ExecutionError, InternalError, InvalidInput, InvalidModel, LimitExceeded, MemoryFault, NoAdapter, OutOfMemory,
  NotDifferentiable, PyRuntimeError, QuotaExceeded, SessionFailed, ShapeError, Terminated, UnsupportedOp,
} from './common/errors.js';
export { off, on } from './common/events.js';
export { InferenceSession } from './page/api/inference_session.js';
export { inspect } from './page/api/inspect.js';
export { models } from './page/api/models.js';
export { Tensor } from './page/pictures/load_code.js';
export { quantize, quantizeStatic } from './page/training/load_code.js';
export { TrainingSession } from './page/training/training_session.js';

Object.defineProperty(env.versions, 'web', { value: '0.1.0', enumerable: true, configurable: true }); // this package's
// Libraries for onnxruntime-web, such as transformers.js, set the address of its files on a CDN if this is unset.
env.wasm.wasmPaths ??= {};

/**
 * Starts the engine before the first session needs it.
 * @param {(p: import('./common/protocol.js').Progress) => void} [onProgress] @param {{ worker?: string }} [options] worker: as of sessions
 */
export async function boot(onProgress, options) {
  await engine(options, 'boot').call('boot', null, { progress: onProgress });
}

/** The worker that the option names. @param {{ worker?: string } | undefined} options @param {string} what takes it */
const engine = (options, what) => attach(null, optionsOf(options, { worker: '' }, what).worker);

/** Bytes and sessions in the workers and the page, tensors on the page's GPU, and what the page dropped without releasing it. */
export async function stats() {
  const [workers, tensors] = await Promise.all([ofAll('stats'), pageTensors()]);
  const { linear, gpu } = budgets;
  const sum = (/** @type {'heap' | 'arenas' | 'gpu' | 'sessions' | 'threads' | 'teams'} */ key) => workers.reduce((all, one) => all + one[key], 0);
  return {
    heap: sum('heap'), sessions: sum('sessions'), threads: sum('threads'), teams: sum('teams'), downloads: workers.flatMap(({ downloads }) => downloads),
    ...tensors, arenas: sum('arenas') + linear.used, gpu: sum('gpu') + gpu.used,
    droppedSessions: droppedSessions.count, droppedTensors: droppedTensors.count,
  };
}

/**
 * Registers a provider in JavaScript: a module, which the engine's worker imports. Resolves to its name.
 * @param {string | URL} address @param {{ worker?: string }} [options]
 */
export async function registerProvider(address, options) {
  const name = await engine(options, 'registerProvider').call('provider', { address: platform.address(String(address)) });
  registerProviders([name]);
  return name;
}

/**
 * Runs Python in the engine's interpreter, to add operators, passes and providers; `args` is in scope under that name.
 * Resolves to the value of the last expression, as plain data.
 * @param {string} code
 * @param {unknown} [args]
 * @param {{ worker?: string }} [options]
 */
export async function python(code, args = null, options) {
  if (typeof code !== 'string') throw new InvalidInput('the code of ort.python must be a text');
  const { value, providers } = await engine(options, 'python').call('python', { code, args });
  registerProviders(providers);
  return value;
}

export { shutdown };

/** A default export, as onnxruntime-web has: `import ort from …`. */
export default ort;
