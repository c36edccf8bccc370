// The engine's worker: answers the calls of common/protocol.js. It compiles in Python and runs without it.

import { SessionFailed } from '../common/errors.js';
import { StaleFeeds } from '../run/resident_outputs.js';
import { setting } from '../gpu/setting.js';
import { remoteWorkerClass } from '../threads/remote_worker.js';
import { ThreadPool } from '../threads/pool.js';
import { holdLifeline } from '../common/lifeline.js';
import { logging } from '../common/log.js';
import { mark } from '../common/marks.js';
import { platform } from '../common/platform.js';
import { answer } from '../common/protocol.js';
import { hasSharedMemory } from '../common/shared_memory.js';
import { sweepScratch } from '../storage/scratch_file.js';
import { PrefetchedFiles } from './interpreter/prefetched_files.js';
import { Interpreter } from './interpreter/interpreter.js';
import { budgets, watcher } from '../run/budgets.js';
import { freeIdle } from '../session/idle_models.js';
import { Model } from '../session/model.js';
import { listing } from '../session/listing.js';
import { prepare } from '../session/prepare.js';
import { timeline } from '../session/timeline.js';
import { tune } from '../session/tune.js';
import { verify } from '../session/verify.js';
import { inspectModel } from './models/inspect_model.js';
import { lastRun } from './files/model_file.js';
import { moveToDisk } from './files/download.js';
import { usePageFetch } from './files/page_fetch.js';
import { closeAll } from './models/model_files.js';
import { openModel } from './models/open_model.js';
import { addedProviders, trainingCode } from './models/trainer_code.js';
import { compilerForPage } from './models/open_for_page.js';
import { PageCompiler } from './models/page_compiler.js';
import { exportProgram } from './programs/export_program.js';
import { programForPage } from './programs/page_program.js';

/** @import { Stop } from '../common/stop.js' */
/** @import { Opened } from './models/types.js' */
/** @import { Trainer } from './models/trainer.js' */
/**
 * A model, or the compiler of a model that runs in the page. Several sessions may share it; runs execute one after the
 * other.
 * @typedef {{ opened: Opened, queue: Promise<unknown> }} Session
 */

const SETTLED = 1000; // ms after which a session that is ready has most likely run

const interpreter = new Interpreter();
/** Null without shared memory. @type {ThreadPool | null} */
let pool = null;
/** @type {Map<number, Session>} */
const sessions = new Map();
let nextSession = 1;

/** @param {number} id @returns {Session} */
function find(id) {
  const session = sessions.get(id);
  if (!session) throw new SessionFailed('the session was released', { hint: 'create another' });
  return session;
}

/** The model of a session that runs in the worker. @param {Session} session @returns {Model} */
function modelOf({ opened: { model } }) {
  if (!(model instanceof Model)) throw new SessionFailed('the session runs in the page');
  return model;
}

/** The compiler of a session that runs in the page. @param {number} id @returns {PageCompiler} */
function compilerOf(id) {
  const { model } = find(id).opened;
  if (!(model instanceof PageCompiler)) throw new SessionFailed('the session runs in the worker');
  return model;
}

/** @param {number} session @param {Opened} opened @returns {import('../common/protocol.js').CreateResult} */
function described(session, { model, source, timings }) {
  if (model instanceof Model) {
    const { inputs, outputs, about, host } = model;
    return { session, inputs, outputs, about, threads: host.threads ?? 1, gpu: Boolean(host.gpu && source && !model.compiler.added), timings, compiled: null };
  }
  return { session, ...model.values, threads: source?.host.threads ?? 1, gpu: true, timings, compiled: model.compiled };
}

/** Closes the files of a released session that no other session reads. @param {Session} session */
function closeFiles({ opened: { files } }) {
  const inUse = new Set([...sessions.values()].flatMap(({ opened }) => opened.files));
  closeAll(files.filter((file) => !inUse.has(file)));
}

/** @template T @param {Session} session @param {() => Promise<T> | T} action @param {Stop | null} [stop] @returns {Promise<T>} */
function enqueue(session, action, stop = null) {
  const done = session.queue.then(() => {
    stop?.check();
    return action();
  });
  session.queue = done.catch(() => {});
  return done;
}

/** @typedef {(notice: import('../common/protocol.js').Notice) => void} Notify */

/**
 * Answers a call, which waits for its turn.
 * @template T @param {number} id of a session @param {(model: Model) => Promise<T> | T} action @param {Notify} notify of states
 * @param {Stop | null} [stop] @returns {Promise<{ result: T }>}
 */
async function inTurn(id, action, notify, stop = null) {
  const session = find(id);
  const work = () => {
    const model = modelOf(session);
    model.state.changed = (state) => notify({ state });
    return action(model);
  };
  return { result: await enqueue(session, work, stop) };
}

/**
 * Answers calls by work on a model, which waits for its turn.
 * @template {{ session: number }} P @template R @param {(model: Model, params: P) => Promise<R> | R} work
 * @returns {(params: P, notify: Notify) => Promise<{ result: R }>}
 */
const withModel = (work) => (params, notify) => inTurn(params.session, (model) => work(model, params), notify);

/**
 * @param {Model} model @param {import('../common/protocol.js').RunParams} params @param {Stop | null} stop
 * @param {import('./models/gpu_trial.js').GpuTrial} [trial]
 * @returns {Promise<import('../common/protocol.js').RunResult>}
 */
async function timedRun(model, { feeds, fetches, profile }, stop, trial) {
  const start = performance.now();
  try {
    if (trial?.lacksData(feeds)) throw new StaleFeeds('');
    const outputs = await model.run(feeds, fetches, stop, profile ? model.timed : undefined);
    const milliseconds = performance.now() - start;
    if (!profile) trial?.took(model, feeds, Object.keys(fetches), milliseconds);
    return { outputs, milliseconds, kernels: model.kernels };
  } catch (error) {
    if (!(error instanceof StaleFeeds)) throw error;
    return { outputs: {}, milliseconds: 0, kernels: [], stale: true };
  } finally {
    lastRun.ended = performance.now();
  }
}

/** Moves a session to another model, which has the same graph. @param {number} id @param {Model} model */
function adopt(id, model) {
  const session = find(id);
  return enqueue(session, async () => {
    const { opened } = session;
    const { source } = opened;
    const { trainer } = /** @type {Model} */ (opened.model);
    await trainer?.leave();
    if (trainer) model.train(trainer);
    session.opened = { ...opened, model, source: source && { ...source, gpu: model.host.gpu?.adapter ?? null, host: model.host } };
    /** @type {Model} */ (opened.model).state.changed = () => {}; // the session is not released
    opened.model.release();
  });
}

/** @param {import('../common/protocol.js').PageMemory} memory */
function limitMemory({ limits, elsewhere }) {
  for (const kind of /** @type {const} */ (['linear', 'gpu'])) {
    Object.assign(budgets[kind], { limit: limits[kind], elsewhere: elsewhere[kind] });
    while (!budgets[kind].fits(0) && freeIdle());
  }
}

function threadStats() {
  return { threads: pool ? pool.workers.size : 0, teams: pool ? pool.teams : 0 };
}

/** @type {import('../common/protocol.js').Handlers} */
const handlers = {
  open(params) {
    interpreter.assets = params.assets;
    if (params.prefetches) interpreter.prefetched = new PrefetchedFiles(params.assets.asm);
    logging.least = () => params.least;
    limitMemory(params.memory);
    sweepScratch().catch(() => {}); // storage may be forbidden
    const RemoteWorker = params.threads && remoteWorkerClass(params.threads);
    if (RemoteWorker) platform.worker = () => RemoteWorker;
    if (hasSharedMemory() && platform.worker()) pool = new ThreadPool(globalThis.location.href);
    return new Promise((_, reject) => { interpreter.fail = reject; });
  },

  prefetched(params) {
    interpreter.prefetched?.take(params);
    return { result: null };
  },

  hold: async ({ lock }) => ({ result: await holdLifeline(lock) }),

  async boot(_, progress) {
    const start = performance.now();
    const { pyodide } = await interpreter.start(progress);
    return { result: { python: pyodide.version, milliseconds: performance.now() - start } };
  },

  async create(params, progress, stop) {
    logging.least = () => params.env.least;
    Object.assign(setting.adapterOptions, params.env.adapter);
    const others = () => [...sessions.values()].map(({ opened }) => opened);
    const closePort = usePageFetch(params);
    const opened = await openModel(params, progress, stop, { interpreter, pool, others }).finally(closePort);
    const session = nextSession++;
    const same = [...sessions.values()].find(({ opened: { model } }) => model === opened.model);
    sessions.set(session, same ?? { opened, queue: Promise.resolve() });
    setTimeout(moveToDisk, SETTLED, opened.files);
    if (opened.trial) opened.trial.adopt = (model) => adopt(session, model);
    return { result: described(session, opened) };
  },

  async inspect(params, progress, stop) {
    logging.least = () => params.env.least;
    const closePort = usePageFetch(params);
    return { result: await inspectModel(params, progress, interpreter, stop).finally(closePort) };
  },

  async quantise(params, progress, stop) {
    const closePort = usePageFetch(/** @type {import('../common/protocol.js').CreateParams} */ (params)); // has a port for `open` alone
    const { quantise } = await trainingCode(interpreter);
    return { result: await quantise(params, progress, stop, interpreter).finally(closePort) };
  },

  async run(params, notify, stop) {
    const { trial } = find(params.session).opened;
    const { result } = await inTurn(params.session, (model) => timedRun(model, params, stop, trial), notify, stop);
    const tensors = Object.values(result.outputs).flat();
    const buffers = tensors.map((tensor) => /** @type {{ buffer?: ArrayBufferLike } | undefined} */ (tensor?.data)?.buffer);
    const transfer = buffers.filter((buffer) => buffer instanceof ArrayBuffer);
    return { result, transfer: [...new Set(transfer)] };
  },

  program: withModel(programForPage),
  timeline: withModel((model, { feeds }) => timeline(model, feeds)),
  profile: withModel((model, { feeds, repeat }) => model.profile(feeds, repeat)),
  verify: withModel((model, params) => verify(model, params.feeds, params)),
  tune: withModel((model, { feeds, seconds }) => tune(model, feeds, seconds)),
  listing: withModel((model, params) => listing(model, params.feeds, params)),
  export: async ({ session, ...how }, notify) => {
    const { result } = await inTurn(session, (model) => exportProgram(model, how), notify);
    return { result, transfer: [result.buffer] };
  },
  async train({ session, how, values }, notify) {
    const { source } = find(session).opened;
    const { result } = await inTurn(session, (model) => /** @type {Trainer} */ (model.trainer).answer(model, source, how, values), notify);
    return { result, transfer: Object.values(result).map(({ buffer }) => buffer) };
  },
  prepare: withModel((model, { dims }) => prepare(model, dims).then(() => null)),
  trim: withModel((model) => model.trim().then(() => null)),

  async release({ session }) {
    const found = find(session);
    sessions.delete(session);
    if ([...sessions.values()].includes(found)) return { result: null };
    found.opened.trial?.end();
    await enqueue(found, () => found.opened.model.release());
    found.opened.source?.cache?.written.then(() => closeFiles(found)) ?? closeFiles(found);
    return { result: null };
  },

  metrics: ({ session }) => ({ result: modelOf(find(session)).metrics() }),
  memory: ({ session }) => ({ result: modelOf(find(session)).memoryReport() }),
  explain: ({ session }) => ({ result: modelOf(find(session)).explain() }),

  async moveToPage({ session, gpu }) {
    const found = find(session);
    const { source } = found.opened;
    if (!source) throw new SessionFailed('a Program from a file runs in the worker');
    const opened = await enqueue(found, async () => {
      const model = modelOf(found);
      const served = await compilerForPage({ ...source, gpu, cache: null, stop: null, start: performance.now(), progress() {} });
      model.table.releaseExecutors(); // the page needs the memory; the session stays here until it runs in the page
      return served;
    });
    const moved = nextSession++;
    sessions.set(moved, { opened, queue: Promise.resolve() });
    return { result: described(moved, opened) };
  },

  async compile({ session, how, given, outputs }, _, stop) {
    const result = await enqueue(find(session), () => compilerOf(session).compile(how, given, stop, outputs), stop);
    return { result, transfer: result.programs.flatMap((program) => (program ? [program.blob.buffer] : [])) };
  },

  weights({ session, places }) {
    const result = compilerOf(session).weights(places);
    return { result, transfer: result.map(({ buffer }) => buffer) };
  },

  host: async (params, _, stop) => ({ result: await compilerOf(params.session).host(params, stop) }),

  forget({ session, program }) {
    compilerOf(session).forget(program);
    return { result: null };
  },

  memoryLimits(params) {
    limitMemory(params);
    return { result: null };
  },

  async stats() {
    const { linear, gpu } = budgets;
    const files = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType('resource'));
    const downloads = files.map(({ name, transferSize }) => ({ url: name, bytes: transferSize }));
    return { result: { heap: await interpreter.heap(), arenas: linear.used, gpu: gpu.used, sessions: sessions.size, downloads, ...threadStats() } };
  },

  async python({ code, args }) {
    interpreter.customised = true;
    const engine = await interpreter.start();
    const value = await engine.exec(code, args);
    const providers = engine.providers();
    if (providers.length) await addedProviders(interpreter);
    return { result: { value, providers } };
  },

  provider: async ({ address }) => ({ result: await (await addedProviders(interpreter)).register(address) }),
};

/** @param {MessagePort | typeof globalThis} [port] that receives the calls */
export function startEngine(port = globalThis) {
  mark('worker started');
  watcher.changed = () => port.postMessage({ held: { linear: budgets.linear.used, gpu: budgets.gpu.used } });
  answer(port, handlers);
}
