// One session of the worker or of the page, as onnxruntime-common's InferenceSession and ours call it.

import { pool } from '../engine/client.js';
import { InvalidInput, SessionFailed } from '../../common/errors.js';
import { log } from '../../common/log.js';
import { gpuBuffer } from '../../common/protocol.js';
import { differingDims } from '../../common/dim_names.js';
import { checkFeeds, RAW } from '../tensors/check_feeds.js';
import { isProfiling, report } from './gpu_profiling.js';
import { hasBuffers, withoutBuffers } from '../tensors/gpu_tensors.js';
import { keep, Lent } from '../tensors/cached_outputs.js';
import { gpuCode } from '../gpu/load_code.js';
import { ms } from '../options/options.js';
import { pageGpu } from '../gpu/page_gpu.js';
import { PRESETS } from '../options/presets.js';
import { untilVisible } from './visibility.js';
import { PageRunner } from './page_runner.js';
import { whole } from '../tensors/appended_rows.js';
import { Cancellation } from '../engine/cancellation.js';
import { checkFetches, mapsAmong, rowsOfMaps, toMaps } from '../tensors/maps.js';
import { Packer, asTheyAre, packTarget, unpackValue } from '../tensors/wire_tensors.js';
import { Trace } from './trace.js';

/** @typedef {import('onnxruntime-common').Tensor} Tensor */
/** @typedef {import('onnxruntime-common').InferenceSession.ValueMetadata} ValueMetadata */
/** @typedef {import('../../common/protocol.js').CreateResult} CreateResult */
/** @typedef {import('../../common/protocol.js').ValueInfo} ValueInfo */
/** @typedef {import('../../common/protocol.js').WireValue} WireValue */
/** @typedef {import('../../common/protocol.js').NumericData} NumericData */
/** @typedef {import('../gpu/gpu_session.js').GpuSession} GpuSession */
/** @typedef {import('../tensors/appended_rows.js').Rows} Rows */
/** @typedef {import('../../common/protocol.js').WireTensor & { held: number, rows?: Rows }} HeldTensor the worker still has it */
/** @typedef {import('./page_runner.js').Feeds} Feeds */
/** @typedef {ReturnType<typeof import('../options/options.js').runOptions>} RunSettings */
/** @typedef {ReturnType<typeof import('../options/options.js').sessionOptions>} Settings */

/** One session. */
export class Handler {
  /**
   * @param {import('../../common/protocol.js').Caller} caller
   * @param {CreateResult} created
   * @param {Settings} settings
   */
  constructor(caller, created, settings) {
    const { preferred, said, limits } = settings;
    this.caller = caller;
    this.settings = settings;
    this.gpu = created.gpu;
    /** Where it runs on the page's GPU: a promise, as it may move there. @type {Promise<GpuSession> | null} */
    this.here = null;
    /** Whether the worker only compiles for it. */
    this.moved = created.compiled !== null;
    this.preferred = preferred;
    this.said = said;
    /** @type {Trace | null} of a session that is profiled */
    this.trace = null;
    this.session = created.session;
    this.inputs = created.inputs;
    this.outputs = created.outputs;
    this.timings = created.timings;
    this.end = new AbortController(); // its release
    this.pausesHidden = Boolean(settings.given.preset && PRESETS[settings.given.preset].pausesHidden);
    this.pageRunner = new PageRunner(() => caller.call('program', { session: this.session }), created.threads);
    this.pageRunner.refused = limits.memoryLimit !== undefined; // the worker's memory is what is limited
    const own = created.inputs.filter(({ map, hasDefault }) => !map && !hasDefault);
    const maps = [...new Set(created.inputs.flatMap(({ map }) => map?.input ?? []))];
    this.inputNames = [...own.filter(({ optional }) => !optional).map(({ name }) => name), ...maps];
    this.outputNames = created.outputs.map((info) => info.name);
    this.inputMetadata = [...own.map(metadata), ...maps.map((name) => ({ name, isTensor: /** @type {const} */ (false) }))];
    this.maps = mapsAmong(created.outputs);
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
    const cancellation = settings && new Cancellation(settings.given, 'the run');
    feeds = this.checked(feeds);
    cancellation?.check();
    if (this.pausesHidden) {
      await untilVisible(cancellation, this.end.signal, this.caller.end.signal);
      this.usable();
    }
    const buffers = hasBuffers(feeds) || hasBuffers(fetches);
    if (buffers || this.moved) feeds = asTheyAre(feeds);
    const local = this.gpu && (this.moved || buffers) ? await this.settled() : null;
    if (buffers && !local) feeds = await withoutBuffers(feeds, fetches);
    const timed = Boolean(this.trace) || this.gpu && isProfiling();
    const stays = local || timed || differingDims(this.inputs, feeds).size;
    checkFetches(this.maps, fetches);
    const here = stays ? null : this.pageRunner.find(feeds, fetches);
    const results = here ? this.pageRunner.run(here, feeds, fetches) : await this.send(local, feeds, fetches, { cancellation, timed });
    if (here && cancellation) await cancellation.afterwards();
    log('verbose', () => `a run in the ${here || local ? 'page' : 'worker'}: ${ms(performance.now() - start)}`, settings?.said ?? this.said);
    if (settings?.shrinks) await this.trim();
    return Object.fromEntries(Object.entries(results).map(([name, wire]) => [name, this.unpack(name, wire, fetches[name] ?? null, local?.gpu ?? null)]));
  }

  /** Feeds that fit, with rows in the place of maps. @param {Feeds} feeds */
  checked(feeds) {
    return checkFeeds(rowsOfMaps(feeds, this.inputs), this.inputs);
  }

  /** The session on the page's GPU, which it moves to if it was in the worker: no GPUBuffer can be sent there. */
  settled() {
    this.here ??= this.settle().catch((error) => {
      this.here = null;
      throw error;
    });
    return this.here;
  }

  async settle() {
    const gpu = await pageGpu(this.settings.device, this.settings.given.preset);
    const created = await this.caller.call('settle', { session: this.session, gpu: gpu.adapter });
    const release = (/** @type {number} */ session) => void this.caller.call('release', { session }).catch(() => {});
    const local = await this.open(created, gpu).catch((cause) => {
      release(created.session);
      const hint = 'it stays in the worker, and runs with tensors on the CPU';
      throw new SessionFailed(`the session could not move to the page's GPU: ${cause.message}`, { hint, cause });
    });
    release(this.session);
    this.session = created.session;
    this.moved = true;
    this.pageRunner.release();
    return local;
  }

  /** The session on the page's GPU, if it is there. */
  async local() {
    return this.here?.catch(() => null) ?? null;
  }

  /**
   * What the worker compiled, in the page.
   * @param {CreateResult} created @param {import('../../gpu/device.js').Gpu} gpu @param {Cancellation | null} [cancellation] of the creation
   */
  async open(created, gpu, cancellation = null) {
    const { GpuSession } = await gpuCode();
    return GpuSession.open(this.caller, created, gpu, this.settings, cancellation);
  }

  /**
   * A run that takes a queue: on the page's GPU or in the worker.
   * @param {GpuSession | null} local @param {Feeds} feeds @param {Record<string, Tensor | null>} fetches
   * @param {{ cancellation: Cancellation | null, timed: boolean }} how timed: kernels are
   */
  async send(local, feeds, fetches, { cancellation, timed }) {
    const start = performance.now();
    const { trace } = this;
    const wanted = Object.fromEntries(Object.entries(fetches).map(([name, into]) => [name, into ?? this.location(name)]));
    const sent = local ? local.run(feeds, wanted, cancellation, timed) : this.runThere(feeds, {
      fetches: Object.fromEntries(Object.entries(fetches).map(([name, into]) => [name, into && packTarget(into)])), profile: timed,
    }, cancellation?.watch);
    const late = (/** @type {import('../../common/protocol.js').RunResult} */ { outputs }) => drop(outputs, fetches, local);
    const busy = local || Object.values(fetches).some(Boolean); // with what is the caller's, until the run has ended
    const { outputs, milliseconds, kernels } = await (!cancellation ? sent : busy ? cancellation.result(sent, late) : cancellation.race(sent, late));
    trace?.kernels(kernels, start);
    trace?.session('model_run', start);
    if (timed && isProfiling()) report(kernels);
    if (!timed && !local) this.pageRunner.countWorkerRun(feeds, milliseconds, performance.now() - start);
    return outputs;
  }

  /**
   * In the worker, which is told of outputs that it still has by their names.
   * @param {Feeds} feeds @param {Record<string, unknown>} more parameters @param {import('../../common/protocol.js').Watch} [watch]
   */
  async runThere(feeds, more, watch) {
    const lent = new Lent(Object.values(feeds), this);
    try {
      const result = await this.ask('run', feeds, more, watch, lent);
      for (const wire of Object.values(result.outputs)) if (isHeld(wire)) wire.rows = lent.rows(wire);
      return result;
    } finally {
      lent.giveBack();
    }
  }

  /**
   * A call of the worker with feeds; pool buffers come back whatever happens. It gets the data of those that are only named
   * if it has not.
   * @template {'run' | 'verify' | 'profile' | 'tune'} K
   * @param {K} call @param {Feeds} feeds @param {Record<string, unknown>} more parameters
   * @param {import('../../common/protocol.js').Watch} [watch] it may be stopped
   * @param {Lent | null} [lent]
   * @returns {Promise<import('../../common/protocol.js').Calls[K]['result']>}
   */
  async ask(call, feeds, more, watch, lent = null) {
    const packer = new Packer(pool, lent);
    const send = (/** @type {Record<string, WireValue>} */ wire) => {
      const params = /** @type {any} */ ({ session: this.session, feeds: wire, ...more });
      return this.caller.call(call, params, { transfer: packer.transfer, watch });
    };
    try {
      const wire = packer.packAll(feeds);
      const result = await send(wire);
      return 'stale' in result && result.stale ? await send(packer.whole(wire)) : result;
    } finally {
      pool.give(packer.borrowed);
    }
  }

  async dispose() {
    if (this.end.signal.aborted) return;
    this.end.abort();
    this.pageRunner.release();
    const local = await this.local();
    if (local) await local.release();
    else await this.caller.call('release', { session: this.session });
  }

  /** @param {string} name @param {WireValue} wire @param {Tensor | null} into @param {import('../../gpu/device.js').Gpu | null} gpu */
  unpack(name, wire, into, gpu) {
    if (isHeld(wire) && wire.rows) return this.unpackHeld(name, wire, wire.rows, into);
    const value = unpackValue(name, wire, into, gpu);
    const classes = this.maps.get(name);
    return classes ? toMaps(name, /** @type {Tensor} */ (value), classes) : value;
  }

  /** @param {string} name @param {HeldTensor} wire @param {Rows} rows @param {Tensor | null} into */
  unpackHeld(name, wire, rows, into) {
    if (into) return unpackValue(name, { ...wire, data: whole(rows) }, into, null);
    const { type, dims, data } = wire;
    const empty = { type, dims: [0], data: /** @type {NumericData} */ (data).subarray(0, 0) };
    const tensor = /** @type {Tensor} */ (unpackValue(name, rows.before ? empty : { type, dims, data }, null, null));
    keep(tensor, this, wire.held, rows);
    return tensor;
  }

  /** Where a new output goes. @param {string} name @returns {import('../../common/protocol.js').Fetch} */
  location(name) {
    if (this.maps.has(name)) return null;
    const where = typeof this.preferred === 'string' ? this.preferred : this.preferred?.[name];
    return where === 'gpu-buffer' ? 'gpu' : null;
  }

  /** @param {Feeds} feeds @param {number} tolerance */
  async verify(feeds, tolerance) {
    this.usable();
    const checked = asTheyAre(this.checked(feeds));
    const local = await this.local();
    return local ? local.verify(checked, tolerance) : this.ask('verify', checked, { tolerance });
  }

  /** @param {Feeds} feeds */
  async profile(feeds) {
    this.usable();
    const checked = asTheyAre(this.checked(feeds));
    const local = await this.local();
    return local ? local.profile(checked) : this.ask('profile', checked, {});
  }

  /** @param {Feeds} feeds @param {number} seconds */
  async tune(feeds, seconds) {
    this.usable();
    const checked = asTheyAre(this.checked(feeds));
    if (this.moved) throw new InvalidInput("a session on the page's GPU cannot be tuned", { hint: 'tune one whose tensors are on the CPU' });
    return this.ask('tune', checked, { seconds });
  }

  async trim() {
    this.usable();
    this.pageRunner.clear();
    const local = await this.local();
    if (local) await local.trim();
    else await this.caller.call('trim', { session: this.session });
  }

  /** @param {'memory' | 'explain'} what */
  async tell(what) {
    this.usable();
    const local = await this.local();
    const told = local ? local.ask(what) : await this.caller.call(what, { session: this.session });
    return what === 'memory' ? { ...told, page: this.pageRunner.bytes() } : told;
  }

  usable() {
    if (this.end.signal.aborted) throw new SessionFailed('the session was released');
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

/** @param {WireValue} wire @returns {wire is HeldTensor} */
const isHeld = (wire) => Boolean(wire && 'held' in wire && wire.held);

/** Outputs on the GPU that nobody gets; those to fill are the page's. @param {Record<string, WireValue>} outputs @param {Record<string, Tensor | null>} fetches @param {GpuSession | null} local */
function drop(outputs, fetches, local) {
  for (const tensor of Object.entries(outputs).filter(([name]) => !fetches[name]).flatMap(([, value]) => value)) {
    const buffer = gpuBuffer(tensor?.data);
    if (buffer) local?.gpu?.tensors.dispose(buffer);
  }
}

/** @param {ValueInfo} info @returns {ValueMetadata} */
function metadata({ name, dtype, shape, sequence }) {
  if (dtype === null || sequence) return { name, isTensor: false };
  const type = /** @type {Tensor['type']} */ (RAW[dtype] ?? dtype);
  return { name, isTensor: true, type, shape: (shape ?? []).map((dim) => dim ?? '') };
}
