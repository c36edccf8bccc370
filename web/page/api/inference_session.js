// onnxruntime's backend and session, over the worker.

import { InferenceSession as Base, registerBackend, Tensor, TRACE_EVENT_BEGIN, TRACE_EVENT_END } from 'onnxruntime-common';
import { attach, checkPlatform } from '../engine/client.js';
import { InvalidInput, NoAdapter } from '../../common/errors.js';
import { warnOnce } from '../../common/log.js';
import { looksLikeProgram } from '../../common/program_mark.js';
import { checkFetches, checkTargets } from '../tensors/check_feeds.js';
import { Handler } from '../sessions/handler.js';
import { checkOutputNames, checkProviders, logCreated, runOptions, sessionOptions } from '../options/options.js';
import { hasPageGpu, noteAdapter, pageGpu } from '../gpu/page_gpu.js';
import { modelParams, streamsOf, withAddress } from '../sessions/model_origins.js';
import { Cancellation, race } from '../engine/cancellation.js';
import { Trace } from '../sessions/trace.js';

/** @typedef {import('onnxruntime-common').InferenceSession.SessionOptions} SessionOptions */
/** @typedef {import('../../common/protocol.js').CreateResult} CreateResult */
/** @typedef {(p: import('../../common/protocol.js').Progress) => void} OnProgress */

/** The backend that onnxruntime-common calls. */
export const backend = {
  async init() {},

  /**
   * @param {string | Uint8Array} model
   * @param {SessionOptions & { onProgress?: OnProgress, signal?: AbortSignal }} [options]
   */
  async createInferenceSessionHandler(model, options = {}) {
    checkPlatform();
    const cancellation = Cancellation.of(options.signal, 'the creation of the session');
    const start = performance.now();
    const settings = sessionOptions(options);
    const { given, params: { logOptions } } = settings;
    const gpu = await ownGpu(settings);
    const params = { ...modelParams(model, settings, given.cache), gpu: gpu?.adapter };
    const caller = attach(!looksLikeProgram(params.model));
    const sent = caller.call('create', params, { transfer: streamsOf(params), progress: given.onProgress, watch: cancellation?.watch });
    const release = (/** @type {CreateResult} */ { session }) => void caller.call('release', { session }).catch(() => {});
    const created = await race(cancellation, sent, release);
    const handler = new Handler(caller, created, settings);
    if (gpu && created.compiled) await openOnGpu(handler, created, gpu, cancellation);
    else if (created.gpu) await noteAdapter();
    checkOutputNames(settings.preferred, handler.outputNames, logOptions);
    logCreated(created, logOptions);
    if (given.enableProfiling) {
      handler.trace = new Trace(start);
      handler.trace.session('session_initialization', start, created.timings);
    }
    return handler;
  },
};

/** The page's GPU, if the session is to run there. @param {ReturnType<typeof sessionOptions>} settings */
async function ownGpu({ webgpu, device, preferred, given }) {
  const buffers = [preferred].flatMap((where) => (typeof where === 'object' ? Object.values(where) : where)).includes('gpu-buffer');
  if (!webgpu || !device && !buffers && !hasPageGpu()) return null;
  const asked = given.executionProviders.map((/** @type {any} */ item) => item.name ?? item);
  const gpu = await pageGpu(device, given.preset).catch((error) => {
    if (error instanceof NoAdapter && asked.includes('wasm')) return null; // the worker has none, either, and says so
    throw error;
  });
  gpu?.alive();
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

/** The names under which pages ask for an execution provider; all of them are this engine. */
export function register() {
  for (const name of ['webgpu', 'wasm', 'cpu']) registerBackend(name, /** @type {any} */ (backend), name === 'wasm' ? 10 : 5);
}

/** Providers that the page has brought. @param {string[]} names */
export function offer(names) {
  for (const name of names) registerBackend(name, /** @type {any} */ (backend), -1); // never by default
}

/**
 * Outputs by name, with the tensors to fill, and run options: an object that names no output is those, as in onnxruntime.
 * @param {unknown} fetches @param {unknown} options @param {Handler} handler
 * @returns {{ fetches: Record<string, Tensor | null>, settings: ReturnType<typeof runOptions> }}
 */
function runArguments(fetches, options, { outputs, outputNames, logOptions }) {
  const every = (/** @type {string[]} */ names) => Object.fromEntries(names.map((name) => [name, null]));
  if (fetches === undefined) return { fetches: every(outputNames), settings: runOptions(options, logOptions) };
  if (typeof fetches !== 'object' || fetches === null || fetches instanceof Tensor) throw new InvalidInput('fetches must be names or an object of tensors by name');
  if (Array.isArray(fetches)) {
    if (!fetches.length) throw new InvalidInput('fetches must not be empty');
    checkFetches(fetches, outputs);
    return { fetches: every(fetches), settings: runOptions(options, logOptions) };
  }
  const named = Object.entries(fetches).filter(([name]) => outputNames.includes(name));
  if (!named.length) return { fetches: every(outputNames), settings: runOptions(options ?? fetches, logOptions) };
  checkTargets(named);
  for (const name of Object.keys(fetches)) if (!outputNames.includes(name)) warnOnce(`fetches name "${name}", which is no output`, logOptions);
  return { fetches: Object.fromEntries(named), settings: runOptions(options, logOptions) };
}

const Concrete = /** @type {any} */ (Base);

/** onnxruntime-common's error for providers that nobody has. @param {Error} error @returns {never} */
function unavailable(error) {
  if (!error.message.startsWith('no available backend')) throw error;
  throw new InvalidInput('none of the executionProviders is available', { hint: "'webgpu', 'wasm' or the page's own; no available backend found", cause: error });
}

/** onnxruntime's session, with errors of our tree and what only this engine can tell. */
export class InferenceSession extends Concrete {
  /** @param {Handler} handler */
  constructor(handler) {
    super(handler);
  }

  /**
   * @param {any} model as onnxruntime's, a URL, a Blob, a stream, a Response, or a handle of a file
   * @param {any[]} args where it is an ArrayBuffer offset and length, then options
   * @returns {Promise<InferenceSession>}
   */
  static async create(model, ...args) {
    register();
    checkProviders(args);
    const session = await withAddress(model, (known) => Concrete.create(known, ...args)).catch(unavailable);
    return session.handler instanceof Handler ? new InferenceSession(session.handler) : session; // of a backend of others
  }

  /**
   * As onnxruntime's; besides tensors a feed may be an array of tensors (a sequence) or null (an absent optional).
   * @param {any} feeds
   * @param {string[] | Record<string, Tensor | null>} [fetches] or the options
   * @param {import('onnxruntime-common').InferenceSession.RunOptions & import('../engine/cancellation.js').StopOptions} [options]
   * @returns {Promise<Record<string, any>>}
   */
  async run(feeds, fetches, options) {
    const handler = /** @type {Handler} */ (this.handler);
    handler.checkUsable();
    const wanted = runArguments(fetches, options, handler);
    TRACE_EVENT_BEGIN('InferenceSession.run');
    try {
      return await handler.run(feeds, wanted.fetches, wanted.settings);
    } finally {
      TRACE_EVENT_END('InferenceSession.run');
    }
  }

  /** Ends `enableProfiling` or `startProfiling()`: prints the trace of all runs in between, and gives it. @returns {string} */
  endProfiling() {
    return this.handler.endProfiling();
  }

  /** The plan: bytes at peak, of the arena, of weights. */
  memory() {
    return this.handler.tell('memory');
  }

  /** Gives back memory that an earlier, larger run took. */
  trim() {
    return /** @type {Handler} */ (this.handler).trim();
  }

  /** What the compiler did: operators, kernels, placement. */
  explain() {
    return this.handler.tell('explain');
  }

  /**
   * Runs the model on the GPU and on WebAssembly, and names the first kernel whose results differ by more than
   * `tolerance` of the tensor's largest value.
   * @param {any} feeds @param {{ tolerance?: number }} [options]
   */
  verify(feeds, { tolerance = 1e-3 } = {}) {
    return /** @type {Handler} */ (this.handler).verify(feeds, tolerance);
  }

  /**
   * Measures other schedules of the kernels on this machine, some `seconds` each; `choices` is an option of later sessions.
   * @param {any} feeds @param {{ seconds?: number }} [options]
   */
  tune(feeds, { seconds = 2 } = {}) {
    return /** @type {Handler} */ (this.handler).tune(feeds, seconds);
  }

  /** Runs once, each kernel on its own; gives their times in the order they ran. @param {Record<string, any>} feeds */
  profile(feeds) {
    return /** @type {Handler} */ (this.handler).profile(feeds);
  }

  /** Milliseconds that download, compilation and start-up took. */
  get timings() {
    return this.handler.timings;
  }
}
