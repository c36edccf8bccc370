// Owns the engine's workers: starts each for its first session, and a new one after it ended.

import { env } from 'onnxruntime-common';
import { assetUrls } from './assets.js';
import { InvalidInput, PyRuntimeError, SessionFailed } from '../../common/errors.js';
import { ENGINE } from '../../threads/mailbox.js';
import { importScript } from '../../common/import_script.js';
import { lifelineEnds } from '../../common/lifeline.js';
import { logging, warnOnce } from '../../common/log.js';
import { platform } from '../../common/platform.js';
import { Caller } from '../../common/protocol.js';
import { hasSharedMemory } from '../../common/shared_memory.js';
import { spawn, startHint } from '../../common/spawn.js';
import { connectMemory, disconnectMemory, pageMemory } from './page_memory.js';
import { prefetch } from './prefetch.js';
import { heldLock, isForAll, spawnShared } from './shared_worker.js';
import { DeferredWorker } from './deferred_worker.js';
import { WorkerHost, workersHang } from './worker_host.js';
import { PRESETS } from '../options/engine_options.js';
import { SharedPool } from '../tensors/wire_tensors.js';

/**
 * name: the option `worker`, "" by default; workers: workers that the page starts for the engine's worker.
 * @typedef {{ name: string, caller: Caller, workers: WorkerHost | null }} Connection
 */

/** @import { Origin } from '../../common/protocol.js' */
/** @import { ThreadPool } from '../../threads/pool.js' */
/** By name. @type {Map<string, Connection>} */
const connections = new Map();

/** Threads that run Programs in the page. @type {ThreadPool | null} */
let threads = null;
/** The file of these threads, if they can start. */
let script = '';

export const pool = new SharedPool();

/**
 * Whether prefetching pays: the worker is another thread than the page, unlike in service workers and some shared ones, and files are
 * remote, unlike in Node.js.
 */
const canPrefetch = () => !platform.reportsWorkerExit && platform.worker() && !('ServiceWorkerGlobalScope' in globalThis);

/** Whether the page and this worker can share memory. @param {string} [name] */
export const sharesMemory = (name = '') => hasSharedMemory() && !isForAll(name);

/**
 * The worker of this name, started if needed.
 * @param {Origin | null} [model] of its first call, if that will most likely need Python @param {string | null} [worker] the option
 * @returns {Caller}
 */
export function attach(model = null, worker = null) {
  const name = worker ?? '';
  if (typeof name !== 'string') throw new InvalidInput(`worker cannot be ${name}`, { hint: "a name, such as 'speech', or 'shared'" });
  const found = connections.get(name) ?? start(name, canPrefetch() && !isForAll(name) ? model : null);
  return found.caller;
}

/** Calls all workers, at least the first. @param {'stats'} call */
export const ofAll = (call) => Promise.all((connections.size ? [...connections.values()].map(({ caller }) => caller) : [attach()])
  .map((caller) => caller.call(call, null)));

/** Throws in environments without workers; shared workers need none. */
export function checkPlatform() {
  if (platform.worker() || 'SharedWorkerGlobalScope' in globalThis) return;
  const hint = 'import engine.sw.js before, which runs it in a service worker, or create sessions in a page or a dedicated worker';
  throw new SessionFailed('the engine needs a Worker, which this environment lacks', { hint });
}

/** @type {ReturnType<typeof assetUrls> | null} */
let files = null;

/** Addresses of the engine's files. */
export const engineFiles = () => (files ??= assetUrls(env.wasm.wasmPaths));

/** @param {string} name @param {Origin | null} model for which it prefetches @returns {Connection} */
function start(name, model) {
  checkPlatform();
  const worker = new DeferredWorker();
  const caller = new Caller(worker);
  if (name === 'shared' && !isForAll(name)) warnOnce("worker: 'shared' is this page's alone: the browser lacks SharedWorker or Web Locks here");
  caller.isForAll = isForAll(name);
  const workers = caller.sharesMemory && workersHang() ? new WorkerHost() : null;
  const started = { name, caller, workers };
  connections.set(name, started);
  connectMemory(caller);
  worker.onmessageerror = () => end(caller, 'a message could not be read');
  worker.onrefused = (id, error) => caller.refuse(id, error);
  if (!platform.reportsWorkerExit) watch(caller).catch(() => {}); // without locks the page cannot notice that
  files = assetUrls(env.wasm.wasmPaths);
  files.then((urls) => launch(started, worker, urls, model).catch((error) => {
    if (error instanceof PyRuntimeError) throw error;
    end(caller, error.message, startHint(urls.worker));
  })).catch((error) => end(caller, error.detail ?? error.message, error.hint || undefined, error));
  return started;
}

/**
 * @param {Connection} started @param {DeferredWorker} worker @param {import('./assets.js').AssetUrls} urls
 * @param {Origin | null} model
 */
async function launch(started, worker, urls, model) {
  const { worker: address, ...assets } = urls;
  const { caller, workers } = started;
  const tab = caller.isForAll ? await heldLock() : '';
  worker.onerror = (/** @type {ErrorEvent} */ { message }) => {
    if (caller.hasAnswered) end(caller, message);
    else end(caller, `${address} could not be started${message ? `: ${message}` : ''}`, startHint(address));
  };
  worker.use(tab ? spawnShared(address) : platform.worker() ? spawn(address, ENGINE) : await localEngine(address), () => {
    const params = { assets, prefetches: Boolean(model), least: logging.least(), memory: pageMemory(caller), tab, ...workers && { threads: workers.port } };
    const opened = caller.call('open', params, { transfer: workers ? [workers.port] : [] });
    opened.catch((error) => end(caller, error.detail, error.hint || undefined, error));
  });
  const send = (/** @type {import('../../common/protocol.js').Prefetched} */ file, /** @type {Transferable[]} */ transfer = []) => {
    caller.call('prefetched', file, { transfer }).catch(() => {}); // the worker has ended; other calls report that
  };
  if (model) prefetch(urls, model, send);
  if (hasSharedMemory() && platform.worker()) script = address;
}

/** The engine in this thread, for shared workers where there is no Worker. @param {string} address */
async function localEngine(address) {
  /** @type {{ startEngine(port: MessagePort): void }} */
  const { startEngine } = await importScript(address);
  const { port1, port2 } = new MessageChannel();
  startEngine(port2);
  return Object.assign(port1, { terminate: () => port1.close(), onerror: null });
}

/** Notices when something else ends the worker. @param {Caller} caller */
async function watch(caller) {
  const lock = `pyruntime ${crypto.randomUUID()}`;
  if (!(await caller.call('hold', { lock }))) return;
  await lifelineEnds(lock);
  end(caller, 'it crashed, or something outside this package ended it');
}

/**
 * Ends the worker.
 * @param {Caller} caller @param {string} reason @param {string} [hint] @param {Error} [error] of calls in progress
 */
function end(caller, reason, hint = 'create the session again: that starts a new worker', error = undefined) {
  if (caller.gone) return;
  caller.fail(reason, hint, error);
  caller.worker.terminate();
  for (const { name, workers, ...of } of connections.values()) {
    if (of.caller !== caller) continue;
    workers?.end();
    connections.delete(name);
  }
  disconnectMemory(caller);
  if (connections.size) return;
  threads?.end();
  threads = null;
}

/** Threads for Programs in the page, which start when a Program first needs them. @param {typeof ThreadPool} Pool whose code comes later */
export function pageThreads(Pool) {
  return script ? threads ??= new Pool(script, false) : null;
}

/** Ends the workers with every session in them, and leaves the one for all pages; the next session starts a new one. */
export function shutdown() {
  for (const { caller } of connections.values()) end(caller, 'it was shut down');
}

/** @param {unknown} count @returns {count is number} */
const isCount = (count) => Number.isInteger(count) && Number(count) >= 0;

/**
 * Returns the number of a session's threads: the option, else env.wasm.numThreads, else the number of its preset, but
 * at most one for each processor, and 1 without shared memory.
 * @param {number} [asked] intraOpNumThreads @param {string} [preset] @param {import('../../common/log.js').LogOptions} [logOptions]
 */
export function threadCount(asked, preset, logOptions) {
  const ambient = env.wasm.numThreads;
  const common = Math.min(PRESETS[preset ?? 'latency'].threads, platform.processors());
  const wanted = asked || (isCount(ambient) ? ambient : 0); // onnxruntime ignores other values of numThreads
  if (hasSharedMemory()) return wanted || common;
  if (wanted > 1) {
    const why = globalThis.crossOriginIsolated ? 'this browser gives no shared memory.'
      : 'this page is not cross-origin isolated, so it has no shared memory. Serve it with the headers '
        + 'Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp.';
    warnOnce(`one thread instead of ${wanted}: ${why}`, logOptions, 'one thread');
  }
  return 1;
}
