// One session of the worker, as onnxruntime-common's InferenceSession and ours call it.

import { pool } from './client.js';
import { SessionFailed } from '../common/errors.js';
import { log } from '../common/log.js';
import { gpuId } from '../common/protocol.js';
import { differingDims } from '../common/dim_names.js';
import { checkFeeds, RAW } from './feeds.js';
import { ms } from './options.js';
import { PageRunner } from './page_runner.js';
import { Stopper } from './stopper.js';
import { Packer, packTarget, unpackValue } from './tensors.js';
import { Trace } from './trace.js';

/** @typedef {import('onnxruntime-common').Tensor} Tensor */
/** @typedef {import('onnxruntime-common').InferenceSession.ValueMetadata} ValueMetadata */
/** @typedef {import('../common/protocol.js').CreateResult} CreateResult */
/** @typedef {import('../common/protocol.js').ValueInfo} ValueInfo */
/** @typedef {import('../common/protocol.js').WireValue} WireValue */
/** @typedef {import('./page_runner.js').Feeds} Feeds */
/** @typedef {ReturnType<typeof import('./options.js').runOptions>} RunSettings */
/** @typedef {ReturnType<typeof import('./options.js').sessionOptions>} Settings */

/** One session in the worker. */
export class Handler {
  /**
   * @param {import('../common/protocol.js').Caller} caller
   * @param {CreateResult} created
   * @param {Settings} settings
   */
  constructor(caller, created, { preferred, said, limits }) {
    this.caller = caller;
    this.preferred = preferred;
    this.said = said;
    /** @type {Trace | null} of a session that is profiled */
    this.trace = null;
    this.session = created.session;
    this.inputs = created.inputs;
    this.outputs = created.outputs;
    this.timings = created.timings;
    this.released = false;
    this.pageRunner = new PageRunner(() => caller.call('program', { session: this.session }), created.threads);
    this.pageRunner.refused = limits.memoryLimit !== undefined; // the worker's memory is what is limited
    this.inputNames = created.inputs.filter((info) => !info.optional && !info.hasDefault).map((info) => info.name);
    this.outputNames = created.outputs.map((info) => info.name);
    this.inputMetadata = created.inputs.filter((info) => !info.hasDefault).map(metadata);
    this.outputMetadata = created.outputs.map(metadata);
  }

  /**
   * @param {Feeds} feeds
   * @param {Record<string, Tensor | null>} fetches
   * @param {RunSettings} settings
   * @returns {Promise<Record<string, any>>}
   */
  async run(feeds, fetches, settings) {
    this.usable();
    const start = performance.now();
    const stopper = settings && new Stopper(settings.given, 'the run');
    feeds = checkFeeds(feeds, this.inputs);
    stopper?.check();
    const stays = this.preferred || this.trace || differingDims(this.inputs, feeds).size;
    const here = stays ? null : this.pageRunner.find(feeds, fetches);
    const results = here ? this.pageRunner.run(here, feeds, fetches) : await this.send(feeds, fetches, stopper);
    if (here && stopper) await stopper.afterwards();
    log('verbose', () => `a run in the ${here ? 'page' : 'worker'}: ${ms(performance.now() - start)}`, settings?.said ?? this.said);
    if (settings?.shrinks) await this.trim();
    return Object.fromEntries(Object.entries(results).map(([name, wire]) => [name, unpackValue(name, wire, fetches[name] ?? null, this.caller)]));
  }

  /** A run in the worker. @param {Feeds} feeds @param {Record<string, Tensor | null>} fetches @param {Stopper | null} stopper */
  async send(feeds, fetches, stopper) {
    const wanted = Object.entries(fetches).map(([name, into]) => [name, into ? packTarget(name, into, this.caller) : this.location(name)]);
    const start = performance.now();
    const { trace } = this;
    const sent = this.call('run', feeds, { fetches: Object.fromEntries(wanted), profile: Boolean(trace) }, stopper?.watch);
    const { outputs, milliseconds, kernels } = await (stopper ? stopper.result(sent, ({ outputs: late }) => this.drop(late, fetches)) : sent);
    trace?.kernels(kernels);
    trace?.session('model_run', start);
    if (!trace) this.pageRunner.countWorkerRun(feeds, milliseconds, performance.now() - start);
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

  startProfiling() {
    this.usable();
    this.trace ??= new Trace();
  }

  /** Prints the trace, as onnxruntime-web does, and gives it; "" where nothing is profiled. */
  endProfiling() {
    const text = this.trace?.text() ?? '';
    this.trace = null;
    if (text) console.log(text);
    return text;
  }
}

/** @param {ValueInfo} info @returns {ValueMetadata} */
function metadata({ name, dtype, shape, sequence }) {
  if (dtype === null || sequence) return { name, isTensor: false };
  const type = /** @type {Tensor['type']} */ (RAW[dtype] ?? dtype);
  return { name, isTensor: true, type, shape: (shape ?? []).map((dim) => dim ?? '') };
}
