// onnxruntime's backend and session, over the worker.

import { InferenceSession as Base, registerBackend } from 'onnxruntime-common';
import { attach, checkPlatform, pool, threadCount } from './client.js';
import { InvalidInput, SessionFailed } from '../common/errors.js';
import { gpuId } from '../common/protocol.js';
import { differingDims } from '../common/dim_names.js';
import { checkFeeds, checkFetches, RAW } from './feeds.js';
import { PageRunner } from './page_runner.js';
import { Stopper } from './stopper.js';
import { isShared, Packer, packTarget, unpackValue } from './tensors.js';

/** @typedef {import('onnxruntime-common').Tensor} Tensor */
/** @typedef {import('onnxruntime-common').InferenceSession.SessionOptions} SessionOptions */
/** @typedef {import('onnxruntime-common').InferenceSession.ValueMetadata} ValueMetadata */
/** @typedef {import('../common/protocol.js').CreateResult} CreateResult */
/** @typedef {import('../common/protocol.js').Origin} Origin */
/** @typedef {import('../common/protocol.js').ValueInfo} ValueInfo */
/** @typedef {import('../common/protocol.js').WireValue} WireValue */
/** @typedef {(p: import('../common/protocol.js').Progress) => void} OnProgress */
/** @typedef {import('./page_runner.js').Feeds} Feeds */

/** One session in the worker. */
class Handler {
  /**
   * @param {import('../common/protocol.js').Caller} caller
   * @param {CreateResult} created
   * @param {SessionOptions['preferredOutputLocation']} [preferred]
   * @param {boolean} [stays] whether all runs are in the worker, as its memory is what is limited
   */
  constructor(caller, created, preferred, stays = false) {
    this.caller = caller;
    this.preferred = preferred;
    this.session = created.session;
    this.inputs = created.inputs;
    this.outputs = created.outputs;
    this.timings = created.timings;
    this.released = false;
    this.pageRunner = new PageRunner(() => caller.call('program', { session: this.session }), created.threads);
    this.pageRunner.refused = stays;
    this.inputNames = created.inputs.filter((info) => !info.optional && !info.hasDefault).map((info) => info.name);
    this.outputNames = created.outputs.map((info) => info.name);
    this.inputMetadata = created.inputs.filter((info) => !info.hasDefault).map(metadata);
    this.outputMetadata = created.outputs.map(metadata);
  }

  /**
   * @param {Feeds} feeds
   * @param {Record<string, Tensor | null>} fetches
   * @param {Stopper | null} stopper
   * @returns {Promise<Record<string, any>>}
   */
  async run(feeds, fetches, stopper) {
    this.usable();
    feeds = checkFeeds(feeds, this.inputs);
    stopper?.check();
    const here = this.preferred || differingDims(this.inputs, feeds).size ? null : this.pageRunner.find(feeds, fetches);
    const results = here ? this.pageRunner.run(here, feeds, fetches) : await this.send(feeds, fetches, stopper);
    if (here && stopper) await stopper.afterwards();
    return Object.fromEntries(Object.entries(results).map(([name, wire]) => [name, unpackValue(name, wire, fetches[name] ?? null, this.caller)]));
  }

  /** A run in the worker. @param {Feeds} feeds @param {Record<string, Tensor | null>} fetches @param {Stopper | null} stopper */
  async send(feeds, fetches, stopper) {
    const wanted = Object.entries(fetches).map(([name, into]) => [name, into ? packTarget(name, into, this.caller) : this.location(name)]);
    const start = performance.now();
    const sent = this.call('run', feeds, { fetches: Object.fromEntries(wanted) }, stopper?.watch);
    const { outputs, milliseconds } = await (stopper ? stopper.result(sent, ({ outputs: late }) => this.drop(late, fetches)) : sent);
    this.pageRunner.countWorkerRun(feeds, milliseconds, performance.now() - start);
    return outputs;
  }

  /** Outputs on the GPU that nobody gets. @param {Record<string, WireValue>} outputs @param {Record<string, Tensor | null>} fetches those to fill are the page's */
  drop(outputs, fetches) {
    const made = Object.entries(outputs).filter(([name]) => !fetches[name]).flatMap(([, value]) => value);
    for (const id of made.map((tensor) => gpuId(tensor?.data)).filter(Boolean)) this.caller.call('dispose', { tensor: id }).catch(() => {});
  }

  /**
   * A call of the worker with feeds; pool buffers come back whatever happens.
   * @template {'run' | 'verify' | 'profile'} K
   * @param {K} call @param {Feeds} feeds @param {Record<string, unknown>} more parameters
   * @param {import('../common/protocol.js').Watch} [watch] it may be stopped
   * @returns {Promise<import('../common/protocol.js').Calls[K]['result']>}
   */
  async call(call, feeds, more, watch) {
    const packer = new Packer(pool, this.caller);
    try {
      const wire = Object.fromEntries(Object.entries(feeds).map(([name, value]) => [name, packer.packValue(name, value)]));
      const params = /** @type {any} */ ({ session: this.session, feeds: wire, ...more });
      return await this.caller.call(call, params, { transfer: packer.transfer, watch });
    } finally {
      pool.give(packer.borrowed);
    }
  }

  async dispose() {
    if (this.released) return;
    this.released = true;
    this.pageRunner.release();
    await this.caller.call('release', { session: this.session });
  }

  /** Where a new output goes. @param {string} name @returns {import('../common/protocol.js').Fetch} */
  location(name) {
    const where = typeof this.preferred === 'string' ? this.preferred : this.preferred?.[name];
    return where === 'gpu-buffer' ? 'gpu' : null;
  }

  /** @param {Feeds} feeds @param {number} tolerance */
  async verify(feeds, tolerance) {
    this.usable();
    return this.call('verify', checkFeeds(feeds, this.inputs), { tolerance });
  }

  /** @param {Feeds} feeds */
  async profile(feeds) {
    this.usable();
    return this.call('profile', checkFeeds(feeds, this.inputs), {});
  }

  async trim() {
    this.usable();
    this.pageRunner.clear();
    await this.caller.call('trim', { session: this.session });
  }

  /** @param {'memory' | 'explain'} what */
  async ask(what) {
    this.usable();
    const told = await this.caller.call(what, { session: this.session });
    return what === 'memory' ? { ...told, page: this.pageRunner.bytes() } : told;
  }

  usable() {
    if (this.released) throw new SessionFailed('the session was released');
    if (this.caller.gone) throw this.caller.failure();
  }

  startProfiling() {}
  endProfiling() {}
}

/** @param {ValueInfo} info @returns {ValueMetadata} */
function metadata({ name, dtype, shape, sequence }) {
  if (dtype === null || sequence) return { name, isTensor: false };
  const type = /** @type {Tensor['type']} */ (RAW[dtype] ?? dtype);
  return { name, isTensor: true, type, shape: (shape ?? []).map((dim) => dim ?? '') };
}

/** Session options that mean something in the worker; the others do not cross. */
const PLAIN = ['executionProviders', 'graphOptimizationLevel', 'disabledPasses', 'freeDimensionOverrides', 'enableCpuMemArena', 'enableMemPattern',
  'executionMode', 'logId', 'logSeverityLevel', 'logVerbosityLevel', 'enableProfiling', 'extra'];

/** What refuses models and runs that are too large. */
const LIMITS = ['memoryLimit', 'compileTimeLimit', 'codeSizeLimit'];

/** @param {Record<string, unknown>} limits @returns {import('../common/protocol.js').Limits} */
function checkLimits(limits) {
  for (const [name, value] of Object.entries(limits)) {
    const hint = name === 'compileTimeLimit' ? 'a number of seconds' : 'a number of bytes';
    if (typeof value !== 'number' || !(value > 0)) throw new InvalidInput(`${name} cannot be ${value}`, { hint });
  }
  return limits;
}

/** The backend that onnxruntime-common calls. */
export const backend = {
  async init() {},

  /**
   * @param {string | Uint8Array} model
   * @param {SessionOptions & { onProgress?: OnProgress, signal?: AbortSignal }} [options]
   */
  async createInferenceSessionHandler(model, options = {}) {
    checkPlatform();
    const stopper = options.signal ? new Stopper({ signal: options.signal }, 'the creation of the session') : null;
    stopper?.check();
    const pick = (/** @type {string[]} */ names) => Object.fromEntries(names.map((name) => [name, /** @type {any} */ (options)[name]]).filter(([, value]) => value !== undefined));
    const limits = checkLimits(pick(LIMITS));
    const params = {
      model: origin(model),
      external: (options.externalData ?? []).map((file) => externalFile(file, model)),
      threads: threadCount(options.intraOpNumThreads),
      options: pick(PLAIN),
      limits,
    };
    const caller = attach();
    const sent = caller.call('create', params, { progress: options.onProgress, watch: stopper?.watch });
    const release = (/** @type {CreateResult} */ { session }) => void caller.call('release', { session }).catch(() => {});
    const created = await (stopper ? stopper.race(sent, release) : sent);
    return new Handler(caller, created, options.preferredOutputLocation, limits.memoryLimit !== undefined);
  },
};

/** @param {string | Uint8Array | ArrayBufferLike | Blob} source @param {string} [base] @returns {Origin} */
function origin(source, base = globalThis.document?.baseURI ?? globalThis.location?.href) {
  if (typeof source === 'string') return { url: new URL(source, base).href };
  if (source instanceof Blob) return { blob: source };
  if (!(source instanceof Uint8Array)) return { bytes: new Uint8Array(source) };
  const whole = source.byteLength === source.buffer.byteLength || isShared(source);
  return { bytes: whole ? source : source.slice() };
}

/**
 * @param {NonNullable<SessionOptions['externalData']>[number]} file
 * @param {string | Uint8Array} model
 */
function externalFile(file, model) {
  const base = typeof model === 'string' ? /** @type {{ url: string }} */ (origin(model)).url : undefined;
  if (typeof file === 'string') return { path: file.slice(file.lastIndexOf('/') + 1), origin: origin(file, base) };
  return { path: file.path, origin: origin(file.data, typeof file.data === 'string' ? undefined : base) };
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
 * @returns {{ fetches: Record<string, Tensor | null>, options: import('./stopper.js').StopOptions | null }}
 */
function runArguments(fetches, options, { outputs, outputNames }) {
  const all = Object.fromEntries(outputNames.map((name) => [name, null]));
  const given = checkOptions(options);
  if (fetches === undefined) return { fetches: all, options: given };
  if (typeof fetches !== 'object' || fetches === null) throw new InvalidInput('fetches must be names or an object of tensors by name');
  if (Array.isArray(fetches)) {
    if (!fetches.length) throw new InvalidInput('fetches must not be empty');
    checkFetches(fetches, outputs);
    return { fetches: Object.fromEntries(fetches.map((name) => [name, null])), options: given };
  }
  const named = Object.entries(fetches).filter(([name]) => outputNames.includes(name));
  return named.length ? { fetches: Object.fromEntries(named), options: given } : { fetches: all, options: given ?? fetches };
}

/** @param {unknown} options @returns {import('./stopper.js').StopOptions | null} */
function checkOptions(options) {
  if (options === undefined || options === null) return null;
  if (typeof options !== 'object') throw new InvalidInput('run options must be an object', { hint: '{ signal } or { terminate }' });
  return options;
}

const Concrete = /** @type {any} */ (Base);

/** onnxruntime's session, with errors of our tree and what only this engine can tell. */
export class InferenceSession extends Concrete {
  /** @param {Handler} handler */
  constructor(handler) {
    super(handler);
  }

  /**
   * @param {any[]} args model, and where it is an ArrayBuffer offset and length, then options
   * @returns {Promise<InferenceSession>}
   */
  static async create(...args) {
    register();
    const session = await Concrete.create(...args);
    return session.handler instanceof Handler ? new InferenceSession(session.handler) : session; // of a backend of others
  }

  /**
   * As onnxruntime's; besides tensors a feed may be an array of tensors (a sequence) or null (an absent optional).
   * @param {any} feeds
   * @param {string[] | Record<string, Tensor | null>} [fetches] or the options
   * @param {import('./stopper.js').StopOptions} [options] a signal that stops the run, or `terminate`
   * @returns {Promise<Record<string, any>>}
   */
  async run(feeds, fetches, options) {
    const handler = /** @type {Handler} */ (this.handler);
    handler.usable();
    const wanted = runArguments(fetches, options, handler);
    return handler.run(feeds, wanted.fetches, wanted.options && new Stopper(wanted.options, 'the run'));
  }

  /** The plan: bytes at peak, of the arena, of weights. */
  memory() {
    return this.handler.ask('memory');
  }

  /** Gives back memory that an earlier, larger run took. */
  trim() {
    return /** @type {Handler} */ (this.handler).trim();
  }

  /** What the compiler did: operators, kernels, placement. */
  explain() {
    return this.handler.ask('explain');
  }

  /**
   * Runs the model on the GPU and on WebAssembly, and names the first kernel whose results differ by more than
   * `tolerance` of the tensor's largest value.
   * @param {any} feeds @param {{ tolerance?: number }} [options]
   */
  verify(feeds, { tolerance = 1e-3 } = {}) {
    return /** @type {Handler} */ (this.handler).verify(feeds, tolerance);
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
