// Owns the worker: starts it when the first session is created, starts a new one after it died.

import { env } from 'onnxruntime-common';
import { HINT, assetUrls } from './assets.js';
import { SessionFailed } from '../../common/errors.js';
import { ThreadPool } from '../../threads/pool.js';
import { lifelineEnds } from '../../common/lifeline.js';
import { logging, warnOnce } from '../../common/log.js';
import { place } from '../../common/place.js';
import { Caller } from '../../common/protocol.js';
import { hasSharedMemory } from '../../common/shared_memory.js';
import { spawn } from '../../common/spawn.js';
import { prefetch } from './prefetch.js';
import { DeferredWorker } from './deferred_worker.js';
import { WorkerHost, workersHang } from './worker_host.js';
import { PRESETS } from '../options/engine_options.js';
import { SharedPool } from '../tensors/wire_tensors.js';

/**
 * @typedef {{ caller: Caller, threads: ThreadPool | null, lent: WorkerHost | null }} Connection threads: of Programs in the page; lent: those of the worker
 */

/** @type {Connection | null} */
let connection = null;

export const pool = new SharedPool();

/** Whether the worker is beside this place, as in pages, and not in it, as in service workers; Node.js has files at hand. */
const ownThread = () => !place.toldOfEnds && !('ServiceWorkerGlobalScope' in globalThis);

/**
 * The worker, which starts Python when it needs it.
 * @param {boolean} [early] whether the first that it does will most likely need it
 * @returns {Caller}
 */
export function attach(early = false) {
  connection ??= start(early && ownThread());
  return connection.caller;
}

/** Refuses to start where there is no worker. */
export function checkPlatform() {
  if (place.worker()) return;
  const hint = 'import engine.sw.js before, which runs it in a service worker, or create sessions in a page or a dedicated worker';
  throw new SessionFailed('the engine needs a Worker, which this place does not give', { hint });
}

/** Where the worker's files are. @type {ReturnType<typeof assetUrls> | null} */
let files = null;

/** Of the worker, or of the one to come. */
export const engineFiles = () => (files ??= assetUrls(env.wasm.wasmPaths));

/** @param {boolean} early @returns {Connection} */
function start(early) {
  checkPlatform();
  const worker = new DeferredWorker();
  const caller = new Caller(worker);
  const lent = hasSharedMemory() && workersHang() ? new WorkerHost() : null;
  const started = { caller, threads: /** @type {ThreadPool | null} */ (null), lent };
  worker.onmessageerror = () => lost(caller, 'a message could not be read');
  if (!place.toldOfEnds) watch(caller).catch(() => {}); // where there are no locks, an end from outside stays unknown
  files = assetUrls(env.wasm.wasmPaths);
  files.then((urls) => launch(started, worker, urls, early)).catch((error) => lost(caller, error.message));
  return started;
}

/** @param {Connection} started @param {DeferredWorker} late @param {import('./assets.js').AssetUrls} urls @param {boolean} early */
function launch(started, late, urls, early) {
  const { worker: address, ...assets } = urls;
  const { caller, lent } = started;
  late.onerror = (/** @type {ErrorEvent} */ { message }) => {
    if (caller.heard) lost(caller, message);
    else lost(caller, `${address} could not be started${message ? `: ${message}` : ''}`, HINT);
  };
  late.use(spawn(address, 'pyruntime'), () => {
    const params = { assets, prefetches: early, least: logging.least(), ...lent && { threads: lent.port } };
    caller.call('open', params, { transfer: lent ? [lent.port] : [] }).catch((error) => lost(caller, error.detail, error.hint || undefined, error));
  });
  if (early) prefetch(urls, (found, transfer) => void caller.call('prefetched', found, { transfer }).catch(() => {})); // the worker is gone, which others are told
  if (hasSharedMemory()) started.threads = new ThreadPool(address, false);
}

/** Notices that the worker was ended from outside. @param {Caller} caller */
async function watch(caller) {
  const lock = `pyruntime ${crypto.randomUUID()}`;
  if (!(await caller.call('hold', { lock }))) return;
  await lifelineEnds(lock);
  lost(caller, 'it crashed, or something outside this package ended it');
}

/** @param {Caller} caller @param {string} reason @param {string} [hint] what to do @param {Error} [error] of calls in flight */
function lost(caller, reason, hint = 'create the session again: that starts a new worker', error = undefined) {
  if (caller.gone) return;
  caller.fail(reason, hint, error);
  caller.worker.terminate();
  if (connection?.caller !== caller) return;
  connection.threads?.end();
  connection.lent?.end();
  connection = null;
}

/** For Programs in the page: started when one first wants them. */
export const pageThreads = () => connection?.threads ?? null;

/** Ends the worker with every session in it; the next session starts a new one. */
export function shutdown() {
  if (connection) lost(connection.caller, 'it was shut down');
}

/** @param {unknown} count @returns {count is number} */
const isCount = (count) => Number.isInteger(count) && Number(count) >= 0;

/**
 * How many threads a session gets: as it asks, or env.wasm.numThreads, or its preset, or as many as there are processors,
 * four at most. One without shared memory.
 * @param {number} [asked] intraOpNumThreads @param {string} [preset] @param {import('../../common/log.js').LogOptions} [logOptions]
 */
export function threadCount(asked, preset, logOptions) {
  const ambient = env.wasm.numThreads;
  const common = Math.min(PRESETS[preset ?? 'latency'].threads, place.processors());
  const wanted = asked || (isCount(ambient) ? ambient : 0); // onnxruntime passes over what it cannot use there
  if (hasSharedMemory()) return wanted || common;
  if (wanted > 1) {
    const why = globalThis.crossOriginIsolated ? 'this browser gives no SharedArrayBuffer.'
      : 'this page is not cross-origin isolated, so it has no shared memory. Serve it with the headers '
        + 'Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp.';
    warnOnce(`one thread instead of ${wanted}: ${why}`, logOptions, 'one thread');
  }
  return 1;
}
