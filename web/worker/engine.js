// The engine in its worker: answers the calls of protocol.js. Compiles in Python, runs without it.

import { fetchBytes } from './download.js';
import { DeviceLost, InvalidModel, NoAdapter, SessionFailed } from '../common/errors.js';
import { explain } from '../run/explain.js';
import { acquireGpu, currentGpu } from '../gpu/device.js';
import { Exported, isProgram, looksLikeProgram } from './program_file.js';
import { cachedPrograms } from './program_cache.js';
import { Model } from './model.js';
import { ThreadPool } from '../threads/pool.js';
import { holdLifeline } from '../common/lifeline.js';
import { answer } from '../common/protocol.js';
import { Python } from './python.js';
import { hasRelaxedSimd } from './simd.js';
import { verify } from './verify.js';

/** @typedef {import('../common/protocol.js').CreateParams} CreateParams */
/** @typedef {import('../common/protocol.js').Progress} Progress */
/** @typedef {(p: Progress) => void} OnProgress */
/** @typedef {{ model: Model, queue: Promise<unknown> }} Session runs of a session follow one another */

/** Where Python comes from. @type {import('../common/protocol.js').Assets | null} */
let assets = null;
/** @type {Promise<Python> | null} */
let python = null;
/** Who is told of its start. @type {Set<OnProgress>} */
const watchers = new Set();
/** Tells the page that it cannot be started: another worker may try again. @type {(error: Error) => void} */
let fail = () => {};
/** Whether the page ran Python of its own: then its operators are not those of other pages. */
let own = false;
/** Threads need memory that they can share. @type {ThreadPool | null} */
let pool = null;
/** @type {Map<number, Session>} */
const sessions = new Map();
let nextSession = 1;

/** Python, started if it is not yet. @param {OnProgress} [progress] @returns {Promise<Python>} */
async function interpreter(progress) {
  if (progress) watchers.add(progress);
  try {
    python ??= boot();
    return await python;
  } finally {
    if (progress) watchers.delete(progress);
  }
}

/** @returns {Promise<Python>} */
function boot() {
  if (!assets) throw new SessionFailed('the engine is not started');
  const started = Python.boot(assets, (loaded, total) => watchers.forEach((watcher) => watcher({ phase: 'boot', loaded, total })));
  started.catch((error) => setTimeout(fail, 0, error)); // who waits for it is told first
  return started;
}

/**
 * Files side by side; when one fails, the others are left.
 * @param {CreateParams['external']} files
 * @param {OnProgress} progress
 * @returns {Promise<Map<string, Uint8Array>>} by path
 */
async function downloads(files, progress) {
  const counts = files.map(() => ({ loaded: 0, total: 0 }));
  const stop = new AbortController();
  const bytes = files.map(({ origin }, i) => fetchBytes(origin, (loaded, total) => {
    counts[i] = { loaded, total };
    const sum = (/** @type {'loaded'|'total'} */ key) => counts.reduce((all, count) => all + count[key], 0);
    progress({ phase: 'download', loaded: sum('loaded'), total: counts.every((count) => count.total) ? sum('total') : 0 });
  }, stop.signal));
  try {
    const done = await Promise.all(bytes);
    return new Map(files.map(({ path }, i) => [path, done[i]]));
  } catch (error) {
    stop.abort();
    throw error;
  }
}

/** The GPU, if the session asks for it before WebAssembly, which takes all that is left. @param {Record<string, unknown>} options */
async function gpuFor({ executionProviders }) {
  const asked = /** @type {(string | { name: string })[]} */ (executionProviders ?? []).map((item) => (typeof item === 'string' ? item : item.name));
  if (!asked.slice(0, asked.indexOf('wasm') >>> 0).includes('webgpu')) return null;
  const gpu = await acquireGpu();
  if (gpu) return gpu;
  const reason = 'this browser gives no WebGPU adapter';
  if (!asked.includes('wasm')) throw new NoAdapter(reason, { hint: "ask for ['webgpu', 'wasm'] to run without one" });
  console.warn(`pyruntime: ${reason}; the session runs on WebAssembly`);
  return null;
}

/** A file by its path in the model or by that path's last part. @param {ReadonlyMap<string, Uint8Array>} files @param {string} name */
const lookUp = (files, name) => files.get(name) ?? files.get(name.slice(name.lastIndexOf('/') + 1));

/** @param {ReadonlyMap<string, Uint8Array>} files @returns {import('../run/environment.js').ReadFile} */
function reader(files) {
  return (offset, size, name = '') => {
    const file = lookUp(files, name);
    if (!file) throw new InvalidModel(`external data "${name}" was not given`, { hint: 'list it in the externalData option' });
    if (offset + size > file.length) throw new InvalidModel(`${name ? `external data "${name}"` : 'the model'} is cut off`);
    return file.subarray(offset, offset + size);
  };
}

/** @param {CreateParams} params @param {OnProgress} progress */
async function create(params, progress) {
  const start = performance.now();
  const host = { shared: pool !== null, threads: pool ? params.threads : 1, pool };
  const options = { ...params.options, threads: host.threads, shared: host.shared, relaxed: hasRelaxedSimd() };
  const [files, gpu, place] = await Promise.all([
    downloads([{ path: '', origin: params.model }, ...params.external], progress), gpuFor(params.options), prepare(params, options, progress),
  ]);
  const bytes = /** @type {Uint8Array} */ (files.get(''));
  if (isProgram(bytes)) return opened(params, files, progress, start);
  const read = reader(files);
  const known = own ? null : await place?.find(bytes);
  const download = performance.now() - start;
  if (place && known) {
    try {
      const program = new Exported(known);
      return await begin(new Model(program, program.proxy, read, { ...host, gpu }), progress, { download, compile: 0 });
    } catch {
      await place.remove(bytes); // what else may be wrong shows when it is compiled
    }
  }
  const engine = await interpreter(progress);
  const booted = performance.now();
  progress({ phase: 'compile', loaded: 0, total: 1 });
  const external = Object.fromEntries([...files].filter(([path]) => path).map(([path, file]) => [path, file.length]));
  const proxy = engine.open(read, bytes.length, { ...options, gpu: gpu?.adapter ?? null, external });
  const model = new Model(engine, proxy, read, { ...host, gpu });
  progress({ phase: 'compile', loaded: 1, total: 1 });
  const session = await begin(model, progress, { download, compile: performance.now() - booted });
  if (!own) place?.save(bytes, model);
  return session;
}

/**
 * Where an earlier page may have left the Program. If none did, Python starts beside the download.
 * @param {CreateParams} params @param {Record<string, unknown>} options for Python @param {OnProgress} progress
 */
async function prepare({ model, external }, options, progress) {
  const place = assets && !own && !external.length ? await cachedPrograms(assets.engine, model, options) : null;
  if (!place?.known && !looksLikeProgram(model)) interpreter(progress).catch(() => {}); // told where it is awaited
  return place;
}

/**
 * A session of an exported program.
 * @param {CreateParams} params @param {Map<string, Uint8Array>} files @param {OnProgress} progress @param {number} start
 */
async function opened(params, files, progress, start) {
  const program = new Exported(/** @type {Uint8Array} */ (files.get('')));
  const read = reader(await weights(program, params, files, progress));
  const host = { shared: program.threads > 1, threads: pool ? Math.min(program.threads, params.threads) : 1, pool, gpu: null };
  const download = performance.now() - start;
  try {
    return await begin(new Model(program, program.proxy, read, host), progress, { download, compile: 0 });
  } catch (error) {
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    throw new InvalidModel(`this browser cannot run the program: ${error.message}`, { hint: 'export it with relaxed_simd=False' });
  }
}

/**
 * The files that a program's weights are in, checked: given, or beside it.
 * @param {Exported} program @param {CreateParams} params @param {Map<string, Uint8Array>} files @param {OnProgress} progress
 * @returns {Promise<Map<string, Uint8Array>>} by their names in the Program
 */
async function weights(program, { model }, files, progress) {
  const all = new Map();
  const missing = [];
  for (const [name, file] of program.files) {
    const given = lookUp(files, file);
    if (given) all.set(name, given);
    else missing.push({ path: name, origin: beside(model, file) });
  }
  for (const [name, bytes] of await downloads(missing, progress)) all.set(name, bytes);
  const checked = all.get('');
  if (checked) program.check(checked);
  return all;
}

/**
 * A file beside the model, by the address that was asked for: where that leads to may be a store that has no folders.
 * @param {import('../common/protocol.js').Origin} model @param {string} file
 */
function beside(model, file) {
  if (!('url' in model)) throw new InvalidModel(`the weights are in "${file}"`, { hint: 'list it in the externalData option, or export with weights' });
  const path = file.split('/').map(encodeURIComponent).join('/');
  return { url: new URL(`./${path}`, model.url).href };
}

/** @param {Model} model @param {OnProgress} progress @param {{ download: number, compile: number }} times */
async function begin(model, progress, times) {
  const start = performance.now();
  progress({ phase: 'init', loaded: 0, total: 1 });
  try {
    await model.start();
  } catch (error) {
    model.release();
    throw error;
  }
  const session = nextSession++;
  sessions.set(session, { model, queue: Promise.resolve() });
  progress({ phase: 'init', loaded: 1, total: 1 });
  const timings = { ...times, init: performance.now() - start };
  return { result: { session, inputs: model.inputs, outputs: model.outputs, threads: model.host.threads ?? 1, timings } };
}

/** @param {number} id @returns {Session} */
function find(id) {
  const session = sessions.get(id);
  if (!session) throw new SessionFailed('the session was released');
  return session;
}

/** @template T @param {Session} session @param {() => Promise<T> | T} action @returns {Promise<T>} */
function enqueue(session, action) {
  const done = session.queue.then(action);
  session.queue = done.catch(() => {});
  return done;
}

/** @param {() => Promise<Record<string, import('../common/protocol.js').WireValue>>} run @returns {Promise<import('../common/protocol.js').RunResult>} */
async function timed(run) {
  const start = performance.now();
  return { outputs: await run(), milliseconds: performance.now() - start };
}

function threadStats() {
  return { threads: pool ? pool.workers.size : 0, teams: pool ? pool.teams : 0 };
}

/** @type {import('../common/protocol.js').Handlers} */
const handlers = {
  open(params) {
    assets = params.assets;
    if (globalThis.crossOriginIsolated) pool = new ThreadPool(globalThis.location.href);
    return new Promise((_, reject) => { fail = reject; });
  },

  hold: async ({ lock }) => ({ result: await holdLifeline(lock) }),

  async boot(_, progress) {
    const start = performance.now();
    const { pyodide } = await interpreter(progress);
    return { result: { python: pyodide.version, milliseconds: performance.now() - start } };
  },

  create,

  async run({ session, feeds, fetches }) {
    const found = find(session);
    const result = await enqueue(found, () => timed(() => found.model.run(feeds, fetches)));
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
    return { result: { heap: (await python)?.heap() ?? 0, arenas, sessions: sessions.size, tensors, ...threadStats() } };
  },

  async python({ code, args }) {
    own = true;
    const engine = await interpreter();
    const value = await engine.exec(code, args);
    return { result: { value, providers: engine.providers() } };
  },
};

export function startEngine() {
  answer(globalThis, handlers);
}
