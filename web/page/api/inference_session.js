// onnxruntime's backend and session.

import { InferenceSession as Base, registerBackend, Tensor, TRACE_EVENT_BEGIN, TRACE_EVENT_END } from 'onnxruntime-common';
import { attach, checkPlatform } from '../engine/client.js';
import { InvalidInput, NoAdapter, SessionFailed, Terminated, withHint } from '../../common/errors.js';
import { warnOnce } from '../../common/log.js';
import { optionsOf } from '../../common/records.js';
import { looksLikeProgram } from '../../common/program_mark.js';
import { checkFetches, checkTargets } from '../tensors/check_feeds.js';
import { droppedSessions, Handler } from '../sessions/handler.js';
import { executorCode } from '../executor/load_code.js';
import { PRESETS } from '../options/engine_options.js';
import { record } from '../options/option_kinds.js';
import { checkOutputNames, checkProviders, logCreated, runOptions, sessionOptions } from '../options/options.js';
import { hasPageGpu, noteAdapter, pageGpu } from '../gpu/page_gpu.js';
import { modelParams, streamsOf, withAddress } from '../sessions/model_origins.js';
import { Cancellation, race } from '../engine/cancellation.js';
import { Trace } from '../../runtime/trace.js';

/** @typedef {import('onnxruntime-common').InferenceSession.SessionOptions} SessionOptions */
/** @import { CreateResult } from '../../common/protocol.js' */
/** @import { Feeds } from '../sessions/page_runner.js' */
/** @typedef {(p: import('../../common/protocol.js').Progress) => void} OnProgress */

/** The backend that onnxruntime-common calls. */
export const backend = {
  /**
   * Creates a session with adapters, or one for the handler of a Program with adapters; training/load_code.js sets it.
   * @type {(model: unknown, args: unknown[], handler?: Handler) => Promise<InferenceSession>}
   */
  adapt: /** @type {never} */ (null),

  async init() {},

  /**
   * @param {string | Uint8Array} model
   * @param {SessionOptions & { onProgress?: OnProgress, signal?: AbortSignal }} [options]
   * @param {{ training?: string, adapting?: string }} [changes] of the graph, as JSON: the options of training, or adapters
   */
  async createInferenceSessionHandler(model, options = {}, changes) {
    checkPlatform();
    const cancellation = Cancellation.of(options.signal, 'the creation of the session');
    const start = performance.now();
    const settings = sessionOptions(options);
    const { params: { logOptions } } = settings;
    const gpu = changes?.training ? null : await ownGpu(settings);
    if (changes?.training) settings.params.isAuto = false;
    Object.assign(settings.params.options, changes);
    const params = { ...modelParams(model, settings), gpu: gpu?.adapter };
    const caller = attach(looksLikeProgram(params.model) ? null : params.model, options.worker);
    const sent = caller.call('create', params, { transfer: streamsOf(params), progress: settings.options.onProgress, watch: cancellation?.watch });
    const release = (/** @type {CreateResult} */ { session }) => void caller.call('release', { session }).catch(() => {});
    const created = await race(cancellation, sent, release);
    const needsMore = PRESETS[settings.options.preset ?? 'latency'].savesPower || [...created.inputs, ...created.outputs].some(({ map, classes }) => map ?? classes);
    const handler = new Handler(caller, created, settings, logOptions?.id || nameOf(params.model), needsMore ? await executorCode() : null);
    if (gpu && created.compiled) await openOnGpu(handler, created, gpu, cancellation);
    else if (created.gpu) await noteAdapter(settings.params.limits.gpuTimeout);
    checkOutputNames(settings.preferred, handler.outputNames, logOptions);
    logCreated(created, logOptions);
    if (settings.options.enableProfiling) {
      handler.trace = new Trace(start, 1, 1);
      handler.trace.session('session_initialization', start, performance.now(), created.timings);
    }
    handler.watch.tell('created', { start, milliseconds: performance.now() - start, timings: created.timings });
    return handler;
  },
};

/** The end of a model's address, as the name of its session. @param {import('../../common/protocol.js').Origin} model */
const nameOf = (model) => ('url' in model ? model.url.replace(/[?#].*/, '').replace(/.*\//, '') : '');

/** The page's GPU, if the session is to run there. @param {ReturnType<typeof sessionOptions>} settings */
async function ownGpu({ webgpu, device, preferred, options, params: { limits } }) {
  const buffers = [preferred].flatMap((where) => (typeof where === 'object' ? Object.values(where) : where)).includes('gpu-buffer');
  if (!webgpu || !device && !buffers && !hasPageGpu()) return null;
  const asked = options.executionProviders?.map((item) => (typeof item === 'string' ? item : item.name)) ?? [];
  const gpu = await pageGpu(device, options.preset, limits.gpuTimeout).catch((error) => {
    if (error instanceof NoAdapter && asked.some((name) => ['wasm', 'cpu', 'auto'].includes(name))) return null; // the worker has no GPU either, and warns
    throw error;
  });
  gpu?.throwIfLost();
  return gpu;
}

/**
 * @param {Handler} handler @param {CreateResult} created @param {import('../../gpu/device.js').Gpu} gpu
 * @param {Cancellation | null} cancellation
 */
async function openOnGpu(handler, created, gpu, cancellation) {
  const start = performance.now();
  await handler.gpu.open(created, gpu, cancellation);
  created.timings.init = performance.now() - start;
}

/** Its handlers take runs from our InferenceSession only. @typedef {import('onnxruntime-common').Backend} Backend */
const asBackend = /** @type {Backend} */ (/** @type {unknown} */ (backend));

/** Registers this engine under all names of execution providers. */
export function register() {
  for (const name of ['webgpu', 'wasm', 'cpu', 'auto']) registerBackend(name, asBackend, name === 'wasm' ? 10 : 5);
}

/** Registers execution providers that the page defines. @param {string[]} names */
export function registerProviders(names) {
  for (const name of names) registerBackend(name, asBackend, -1); // never chosen by default
}

/**
 * The tensors to fill, by name of the output, and the run options. As in onnxruntime, an object that names no output is the run options.
 * @param {unknown} fetches @param {unknown} options @param {Handler} handler
 * @returns {{ fetches: Record<string, Tensor | null>, settings: ReturnType<typeof runOptions> }}
 */
function runArguments(fetches, options, { outputs, outputNames, logOptions }) {
  const result = (/** @type {Iterable<[string, Tensor | null]>} */ targets, /** @type {unknown} */ given = options) => (
    { fetches: Object.fromEntries(targets), settings: runOptions(given, logOptions) });
  const every = (/** @type {string[]} */ names) => names.map((name) => /** @type {[string, null]} */ ([name, null]));
  if (fetches === undefined || fetches === null) return result(every(outputNames));
  if (typeof fetches !== 'object' || fetches instanceof Tensor) {
    throw new InvalidInput('fetches must be names or an object of tensors by name', { hint: `['${outputNames[0]}']` });
  }
  if (Array.isArray(fetches)) {
    if (!fetches.length) throw new InvalidInput('fetches must not be empty');
    checkFetches(fetches, outputs);
    return result(every(fetches));
  }
  const named = Object.entries(fetches).filter(([name]) => outputNames.includes(name));
  if (!named.length) return result(every(outputNames), options ?? fetches);
  checkTargets(named);
  for (const name of Object.keys(fetches)) {
    if (!outputNames.includes(name)) warnOnce(`fetches name "${name}", which is no output`, logOptions);
  }
  return result(named);
}

/**
 * The class behind onnxruntime-common's factory, with its private handler.
 * @typedef {{ new (handler: Handler): { handler: Handler }, create(...args: unknown[]): Promise<{ handler: unknown }>,
 *   prototype: object }} BaseClass
 */
const Concrete = /** @type {BaseClass} */ (/** @type {unknown} */ (Base));

/** Replaces onnxruntime-common's errors for arguments and unknown providers. @param {Error} cause @param {unknown[]} args @returns {never} */
function refused(cause, args) {
  if (/^(Unexpected argument\[|')/.test(cause.message)) {
    throw new InvalidInput(`create(model, options): ${cause.message}`, { hint: 'a model is an address, bytes, a Blob, a stream, a Response or a handle of a file', cause });
  }
  if (!cause.message.startsWith('no available backend')) throw cause;
  const { executionProviders = [] } = /** @type {SessionOptions} */ (args.find(record.takes) ?? {});
  const names = executionProviders.map((item) => `'${typeof item === 'string' ? item : item.name}'`).join(', ');
  const hint = "'webgpu', 'wasm', 'auto' or the page's own; no available backend found";
  throw new InvalidInput(`none of the executionProviders (${names}) is available`, { hint, cause });
}

/** onnxruntime's session, with this engine's errors and additional methods. */
export class InferenceSession extends Concrete {
  /** For code in other files (web/extras/parts.js). */
  static classes = { Tensor, InvalidInput, SessionFailed, Terminated, withHint };

  /** @param {Handler} handler */
  constructor(handler) {
    if (!(handler instanceof Handler)) throw new InvalidInput('sessions are not made by new', { hint: 'await ort.InferenceSession.create(model)' });
    super(handler);
    droppedSessions.registry.register(this, handler, handler);
  }

  /**
   * @param {unknown} model as onnxruntime takes it, a URL, a Blob, a stream, a Response, or a handle of a file
   * @param {unknown[]} given for an ArrayBuffer offset and length; then options
   * @override @returns {Promise<{ handler: unknown }>} an InferenceSession; another one if the options name another backend
   */
  static async create(model, ...given) {
    const args = given.filter((arg) => arg !== null && arg !== undefined);
    if (args.some(Array.isArray)) throw new InvalidInput('the options of create cannot be an array', { hint: "{ executionProviders: ['webgpu'] }" });
    register();
    checkProviders(args);
    if (args.some((given) => /** @type {SessionOptions} */ (given)?.adapters)) return backend.adapt(model, args);
    const session = await withAddress(model, (accepted) => Concrete.create(accepted, ...args)).catch((error) => refused(error, args));
    const { handler } = session;
    if (!(handler instanceof Handler)) return session; // of another backend
    return handler.about.adapters ? backend.adapt(model, [], handler) : new InferenceSession(handler); // adapters: of a Program
  }

  /**
   * As in onnxruntime; a feed may also be an array of tensors (a sequence) or null (an absent optional).
   * @param {Feeds} feeds
   * @param {string[] | Record<string, Tensor | null>} [fetches] or the options
   * @param {import('onnxruntime-common').InferenceSession.RunOptions & import('../engine/cancellation.js').StopOptions} [options]
   * @returns {Promise<Record<string, unknown>>}
   */
  async run(feeds, fetches, options) {
    const { handler } = this;
    TRACE_EVENT_BEGIN('InferenceSession.run');
    try {
      return await handler.watch.during((run) => {
        handler.checkUsable();
        const args = runArguments(fetches, options, handler);
        return handler.run(feeds, args.fetches, args.settings, run);
      });
    } finally {
      TRACE_EVENT_END('InferenceSession.run');
    }
  }

  /** Ends `enableProfiling` or `startProfiling()`: prints and returns the trace of all runs since. @returns {string} */
  endProfiling() {
    return this.handler.endProfiling();
  }

  /** Reports the memory plan: bytes at the peak, of the arena, of weights; with feeds also the buffers of a run. @param {{ feeds?: Feeds }} [options] */
  async memory(options) {
    return this.handler.memory(optionsOf(options, { feeds: undefined }, 'memory').feeds);
  }

  /** What the session has counted since it was created. */
  async metrics() {
    return this.handler.metrics();
  }

  /** @returns {import('../../common/protocol.js').State} */
  get state() {
    return this.handler.state;
  }

  /** Its number in events. @returns {number} */
  get id() {
    return this.handler.watch.id;
  }

  /** Plans and takes memory for the largest shapes. @param {{ dims: Record<string, number | number[]> }} options */
  async prepare(options) {
    return this.handler.prepare(options);
  }

  /** Frees memory that larger runs took. */
  async trim() {
    return this.handler.trim();
  }

  /** Reports how the model was compiled: operators, kernels, placement. */
  async explain() {
    return this.handler.report('explain');
  }

  /**
   * Runs the model on the GPU and on WebAssembly, and names the first kernel whose results differ by more than
   * `tolerance` of the tensor's largest value. With `ranges` it runs a half-float model in float32 instead, and names the
   * first node whose magnitudes pass 65504.
   * @param {Feeds} feeds @param {{ tolerance?: number, ranges?: boolean }} [options]
   */
  async verify(feeds, options) {
    return this.handler.verify(feeds, optionsOf(options, { tolerance: 1e-3, ranges: false }, 'verify'));
  }

  /**
   * Measures other schedules of the kernels on this machine, for `seconds` each; `choices` of the result is an option
   * of later sessions.
   * @param {Feeds} feeds @param {{ seconds?: number }} [options]
   */
  async tune(feeds, options) {
    return this.handler.tune(feeds, optionsOf(options, { seconds: 2 }, 'tune').seconds);
  }

  /**
   * The kernels after the passes, their loops and their code, as text; node: a name, operator or label; code: also functions and
   * shaders.
   * @param {Feeds} [feeds] for models that are compiled for their feeds @param {{ node?: string, code?: boolean }} [options]
   */
  async listing(feeds, options) {
    const { handler } = this;
    const what = optionsOf(options, { node: '', code: false }, 'listing');
    return handler.compiling('list kernels').listing(feeds ? handler.copies(feeds) : null, what);
  }

  /**
   * The compiled Program with its weights, as a file that opens without Python: for these providers; assume: what shaders may use.
   * @param {{ providers?: readonly string[], assume?: readonly string[] }} [options] @returns {Promise<Uint8Array>}
   */
  async export(options) {
    const what = optionsOf(options, { providers: ['wasm'], assume: [] }, 'export');
    return this.handler.compiling('export').ask('export', what);
  }

  /**
   * Runs once and times each kernel; returns the times in the order of the kernels.
   * @param {Feeds} feeds @param {{ repeat?: number }} [options] how often each kernel on the GPU runs
   */
  async profile(feeds, options) {
    return this.handler.profile(feeds, optionsOf(options, { repeat: 1 }, 'profile').repeat);
  }

  /** What the author of the model wrote about it; null for an exported program without it. */
  get metadata() {
    return this.handler.about.metadata;
  }

  /** Milliseconds of download, compilation and start-up. */
  get timings() {
    return this.handler.timings;
  }
}
