// The engine in its worker: answers the calls of protocol.js. Compiles in Python, runs without it.

import { DeviceLost, SessionFailed } from '../common/errors.js';
import { explain } from '../run/explain.js';
import { currentGpu, wishes } from '../gpu/device.js';
import { ThreadPool } from '../threads/pool.js';
import { holdLifeline } from '../common/lifeline.js';
import { logging } from '../common/log.js';
import { answer } from '../common/protocol.js';
import { hasSharedMemory } from '../common/shared_memory.js';
import { Interpreter } from './interpreter.js';
import { openModel } from './open_model.js';
import { verify } from './verify.js';

/** @typedef {import('../common/stop.js').Stop} Stop */
/** @typedef {{ model: import('./model.js').Model, queue: Promise<unknown> }} Session runs of a session follow one another */

const interpreter = new Interpreter();
/** Threads need memory that they can share. @type {ThreadPool | null} */
let pool = null;
/** @type {Map<number, Session>} */
const sessions = new Map();
let nextSession = 1;

/** @param {number} id @returns {Session} */
function find(id) {
  const session = sessions.get(id);
  if (!session) throw new SessionFailed('the session was released');
  return session;
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

/** @param {import('./model.js').Model} model @param {import('../common/protocol.js').RunParams} params @param {Stop | null} stop @returns {Promise<import('../common/protocol.js').RunResult>} */
async function timed(model, { feeds, fetches, profile }, stop) {
  const start = performance.now();
  const outputs = await model.run(feeds, fetches, stop, profile);
  return { outputs, milliseconds: performance.now() - start, kernels: model.kernels };
}

function threadStats() {
  return { threads: pool ? pool.workers.size : 0, teams: pool ? pool.teams : 0 };
}

/** @type {import('../common/protocol.js').Handlers} */
const handlers = {
  open(params) {
    interpreter.assets = params.assets;
    logging.least = () => params.least;
    if (hasSharedMemory()) pool = new ThreadPool(globalThis.location.href);
    return new Promise((_, reject) => { interpreter.fail = reject; });
  },

  hold: async ({ lock }) => ({ result: await holdLifeline(lock) }),

  async boot(_, progress) {
    const start = performance.now();
    const { pyodide } = await interpreter.start(progress);
    return { result: { python: pyodide.version, milliseconds: performance.now() - start } };
  },

  async create(params, progress, stop) {
    logging.least = () => params.env.least;
    Object.assign(wishes, params.env.adapter);
    const { model, timings } = await openModel(params, progress, interpreter, pool, stop);
    const session = nextSession++;
    sessions.set(session, { model, queue: Promise.resolve() });
    return { result: { session, inputs: model.inputs, outputs: model.outputs, threads: model.host.threads ?? 1, timings } };
  },

  async run(params, _, stop) {
    const found = find(params.session);
    const result = await enqueue(found, () => timed(found.model, params, stop), stop);
    const tensors = Object.values(result.outputs).flat();
    const buffers = tensors.map((tensor) => (!tensor || Array.isArray(tensor.data) || 'gpu' in tensor.data ? null : tensor.data.buffer));
    const transfer = buffers.filter((buffer) => buffer instanceof ArrayBuffer);
    return { result, transfer: [...new Set(transfer)] };
  },

  async program({ session }) {
    const found = find(session);
    return { result: await enqueue(found, () => found.model.portable()) };
  },

  async profile({ session, feeds }) {
    const found = find(session);
    return { result: await enqueue(found, () => found.model.profile(feeds)) };
  },

  async release({ session }) {
    const found = find(session);
    sessions.delete(session);
    await enqueue(found, () => found.model.release());
    return { result: null };
  },

  async trim({ session }) {
    const found = find(session);
    await enqueue(found, () => found.model.trim());
    return { result: null };
  },

  memory: ({ session }) => ({ result: find(session).model.latest.memoryReport() }),
  explain({ session }) {
    const { model } = find(session);
    const { header, env } = model.latest;
    return { result: { ...explain(header, env), phases: model.phases } };
  },

  async verify({ session, feeds, tolerance }) {
    const found = find(session);
    return { result: await enqueue(found, () => verify(found.model, feeds, tolerance)) };
  },

  async download({ tensor }) {
    const gpu = await currentGpu();
    if (!gpu) throw new DeviceLost('this GPU tensor is gone with its device');
    return { result: await gpu.tensors.download(tensor) };
  },

  async dispose({ tensor }) {
    (await currentGpu())?.tensors.dispose(tensor);
    return { result: null };
  },

  async stats() {
    const arenas = [...sessions.values()].reduce((sum, { model }) => sum + model.arenaBytes(), 0);
    const tensors = (await currentGpu())?.tensors.live.size ?? 0;
    return { result: { heap: await interpreter.heap(), arenas, sessions: sessions.size, tensors, ...threadStats() } };
  },

  async python({ code, args }) {
    interpreter.customised = true;
    const engine = await interpreter.start();
    const value = await engine.exec(code, args);
    return { result: { value, providers: engine.providers() } };
  },
};

export function startEngine() {
  answer(globalThis, handlers);
}
