// One session, as onnxruntime-common's InferenceSession and ours call it.

import { InvalidInput, SessionFailed } from '../../common/errors.js';
import { dropped } from '../../common/dropped.js';
import { log } from '../../common/log.js';
import { mapValues } from '../../common/records.js';
import { differingDims } from '../../common/dim_names.js';
import { Cancellation, race } from '../engine/cancellation.js';
import { GpuPlacement } from '../gpu/gpu_placement.js';
import { ms } from '../options/options.js';
import { PRESETS } from '../options/engine_options.js';
import { record } from '../options/option_kinds.js';
import { joinRows } from '../tensors/appended_rows.js';
import { CachedOutput } from '../tensors/cached_outputs.js';
import { checkFeeds, metadata, RAW } from '../tensors/check_feeds.js';
import { hasBuffers, withoutBuffers } from '../tensors/gpu_tensors.js';
import { snapshot, unpackValue } from '../tensors/wire_tensors.js';
import { Trace } from '../../runtime/trace.js';
import { isProfiling, operatorOf, reportKernels } from './gpu_profiling.js';
import { PageRunner } from './page_runner.js';
import { runPath } from './run_path.js';
import { Watch } from './watch.js';
import { isCached, WorkerSession } from './worker_session.js';

/** @import { CreateResult, EngineCounts, ValueInfo, WireValue } from '../../common/protocol.js' */
/** @import { GpuSession } from '../executor/gpu_session.js' */
/** @import { Feeds } from './page_runner.js' */
/** @import { Run } from './watch.js' */
/** @import { Tensor } from 'onnxruntime-common' */
/** @typedef {import('onnxruntime-common').InferenceSession.ValueMetadata} ValueMetadata */
/** @typedef {Record<string, Tensor | null>} Fetches */
/** @typedef {ReturnType<typeof import('../options/options.js').runOptions>} RunSettings */
/** @typedef {ReturnType<typeof import('../options/options.js').sessionOptions>} Settings */

/** Sessions that the page dropped. */
export const droppedSessions = dropped('session', 'release', (/** @type {Handler} */ handler) => handler.dispose());

export class Handler {
  /**
   * @param {import('../../common/protocol.js').Caller} caller @param {CreateResult} created @param {Settings} settings @param {string} name
   * @param {import('../executor/load_code.js').ExecutorCode | null} late for sessions that rest, and those with maps
   */
  constructor(caller, created, settings, name, late) {
    const { options, params: { logOptions, limits } } = settings;
    const { inputs, outputs, about } = created;
    this.caller = caller;
    this.hasGpu = created.gpu;
    this.logOptions = logOptions;
    this.inputs = inputs;
    this.outputs = outputs;
    this.about = about;
    this.timings = created.timings;
    /** @type {Trace | null} of a session that is profiled */
    this.trace = null;
    this.lifetime = new AbortController();
    this.late = late;
    this.rests = late && options.preset && PRESETS[options.preset].savesPower ? new late.Rests() : null;
    this.watch = new Watch(name);
    this.worker = new WorkerSession(caller, created.session);
    this.worker.changed = this.watch.changed;
    this.pageRunner = new PageRunner(() => this.worker.ask('program'), created.threads);
    this.pageRunner.isRefused = limits.memoryLimit !== undefined || caller.isForAll; // the limit counts memory in the worker
    this.gpu = new GpuPlacement(this.worker, settings, created.compiled !== null, () => this.pageRunner.release());
    const own = inputs.filter(({ map, hasDefault }) => !map && !hasDefault);
    const maps = [...new Set(inputs.flatMap(({ map }) => map?.input ?? []))];
    this.inputNames = [...own.filter(({ optional }) => !optional).map(({ name }) => name), ...maps];
    this.outputNames = outputs.map((info) => info.name);
    this.inputMetadata = [...own.map(metadata), ...maps.map((name) => ({ name, isTensor: /** @type {const} */ (false) }))];
    /** Classes of the outputs that are maps, by name. */
    this.maps = new Map(outputs.flatMap(({ name: output, classes }) => (classes ? [[output, classes]] : [])));
    this.outputMetadata = outputs.map(metadata);
  }

  // ── runs ──

  /**
   * @param {Feeds} feeds @param {Fetches} fetches @param {RunSettings} settings @param {Run} [run] gets what events tell
   * @returns {Promise<Record<string, any>>}
   */
  async run(feeds, fetches, settings, run = { place: '', kernels: [] }) {
    this.checkUsable();
    const start = performance.now();
    const cancellation = settings && new Cancellation(settings.options, 'the run');
    feeds = this.checked(feeds, Object.keys(fetches));
    cancellation?.check();
    if (this.rests) await this.untilFit(cancellation, this.rests);
    const begun = performance.now();
    const hasGpuTensors = hasBuffers(feeds) || hasBuffers(fetches);
    if (hasGpuTensors || this.gpu.hasMoved) feeds = snapshot(feeds);
    if (hasGpuTensors && !this.hasGpu) feeds = await withoutBuffers(feeds, fetches);
    this.late?.maps.checkFetches(this.maps, fetches);
    const isTimed = Boolean(this.trace) || this.hasGpu && isProfiling();
    const program = this.pageRunner.find(feeds, fetches);
    const dimsDiffer = differingDims(this.inputs, feeds).size > 0;
    const { place, reason } = runPath({ hasMoved: this.gpu.hasMoved, hasGpu: this.hasGpu, hasGpuTensors, isTimed, dimsDiffer, program });
    const local = place === "page's GPU" ? await this.gpu.move() : null;
    run.place = place;
    const inPage = place === 'page' && program ? this.pageRunner.tryRun(program, feeds, fetches) : null;
    const results = inPage ?? await this.send(local, feeds, fetches, cancellation, isTimed, run);
    if (inPage) await cancellation?.checkLater();
    this.rests?.note(begun);
    log('verbose', () => `a run in the ${place} (${reason}): ${ms(performance.now() - start)}`, settings?.logOptions ?? this.logOptions);
    if (settings?.shrinks) await this.trim();
    const gpu = local?.gpu ?? null;
    return mapValues(results, (wire, name) => this.unpack(name, wire, fetches[name] ?? null, gpu));
  }

  /** @param {Cancellation | null} cancellation @param {import('../executor/pressure.js').Rests} rests */
  async untilFit(cancellation, rests) {
    await rests.untilFit(cancellation, this.lifetime.signal, this.caller.end.signal);
    this.checkUsable();
  }

  /** Checks feeds, and replaces maps by rows. @param {Feeds} feeds @param {string[]} names of the outputs of the run */
  checked(feeds, names = this.outputNames) {
    const { uses, unused } = this.about;
    if (unused.length && record.takes(feeds)) feeds = Object.fromEntries(Object.entries(feeds).filter(([name]) => !unused.includes(name)));
    const isNeeded = (/** @type {string} */ input) => (
      names.length === this.outputNames.length || names.some((name) => uses[name]?.includes(input) ?? true));
    return checkFeeds(this.late?.maps.rowsOfMaps(feeds, this.inputs) ?? feeds, this.inputs, isNeeded);
  }

  /**
   * A run that waits for its turn, on the page's GPU or in the worker.
   * @param {GpuSession | null} local @param {Feeds} feeds @param {Fetches} fetches
   * @param {Cancellation | null} cancellation @param {boolean} isTimed @param {Run} run
   */
  async send(local, feeds, fetches, cancellation, isTimed, run) {
    const start = performance.now();
    const sent = (local ?? this.worker).run(feeds, fetches, cancellation, isTimed);
    const dropLate = (/** @type {import('../../common/protocol.js').RunResult} */ { outputs }) => local?.drop(outputs, fetches);
    const writesTargets = local || Object.values(fetches).some(Boolean); // the run may write to them until it ends
    const { outputs, milliseconds, kernels } = await (
      cancellation && this.about.training ? cancellation.outcome(sent)
        : cancellation && writesTargets ? cancellation.result(sent, dropLate) : race(cancellation, sent, dropLate));
    run.kernels = kernels;
    const end = performance.now();
    this.trace?.kernels(kernels.map((call) => ({ start: null, operator: operatorOf(call.node), ...call })), start, end);
    this.trace?.session('model_run', start, end, {});
    if (isTimed && isProfiling()) reportKernels(kernels);
    if (!isTimed && !local) this.pageRunner.countWorkerRun(feeds, milliseconds, performance.now() - start);
    return outputs;
  }

  /**
   * @param {string} name @param {WireValue} wire @param {Tensor | null} into @param {import('../../gpu/device.js').Gpu | null} gpu
   */
  unpack(name, wire, into, gpu) {
    if (isCached(wire) && wire.rows) {
      if (into) return unpackValue(name, { ...wire, data: joinRows(wire.rows) }, into, null);
      return new CachedOutput(RAW[wire.type] ?? wire.type, this.worker, wire.held, wire.rows);
    }
    const value = unpackValue(name, wire, into, gpu);
    const classes = this.maps.get(name);
    return classes ? this.late?.maps.toMaps(name, /** @type {Tensor} */ (value), classes) : value;
  }

  // ── other work ──

  /** Checked feeds that the caller cannot change while the work waits. @param {Feeds} feeds */
  copies(feeds) {
    this.checkUsable();
    return snapshot(this.checked(feeds));
  }

  /** @param {Feeds} feeds @param {import('../../session/verify.js').How} how */
  async verify(feeds, how) {
    const copies = this.copies(feeds);
    return (await this.gpu.current()).verify(copies, how);
  }

  /** @param {Feeds} feeds @param {number} repeat */
  async profile(feeds, repeat) {
    const copies = this.copies(feeds);
    return (await this.gpu.current()).profile(copies, repeat);
  }

  /** @param {Feeds} feeds @param {number} seconds */
  async tune(feeds, seconds) {
    return this.compiling('tune').tune(this.copies(feeds), seconds);
  }

  /** The session in the worker, which has the compiler. @param {string} what */
  compiling(what) {
    this.checkUsable();
    if (!this.gpu.hasMoved) return this.worker;
    throw new InvalidInput(`a session on the page's GPU cannot ${what}`, { hint: 'create one whose tensors are on the CPU' });
  }

  /** @param {unknown} options */
  async prepare(options) {
    this.checkUsable();
    const { dims } = /** @type {{ dims?: Record<string, number | number[]> }} */ (options ?? {});
    if (typeof dims !== 'object' || dims === null) throw new InvalidInput('prepare needs sizes of dims', { hint: 'prepare({ dims: { batch: 8 } })' });
    await (await this.gpu.current()).prepare({ ...dims });
  }

  async trim() {
    this.checkUsable();
    this.pageRunner.clear();
    await (await this.gpu.current()).trim();
  }

  /** @returns {import('../../common/protocol.js').State} */
  get state() {
    if (this.lifetime.signal.aborted) return 'released';
    const { state, busy } = this.watch;
    if (this.caller.gone) return 'failed';
    return busy ? (state === 'recovering' ? state : 'running') : state === 'failed' ? state : 'ready';
  }

  /** Of a session that has ended, what is known. */
  async metrics() {
    const { watch, pageRunner } = this;
    const asked = this.gpu.current().then((session) => session.ask('metrics'));
    watch.engine = /** @type {EngineCounts} */ (await asked.catch(() => ({ ...watch.engine, bytes: 0 })));
    const { recovered, compiled, runs, planned, bytes } = watch.engine;
    const here = pageRunner.counts ?? { runs: 0, planned: 0 };
    return watch.counts.report({
      recovered, compiled, runs: runs + here.runs, planned: planned + here.planned, bytes: bytes + pageRunner.bytes(),
      waiting: Math.max(0, watch.busy - 1), // runs of a session execute one after the other
    });
  }

  /** The memory, and with feeds the buffers of a run on them. @param {Feeds | undefined} feeds */
  async memory(feeds) {
    if (!feeds) return this.report('memory');
    const copies = this.copies(feeds);
    const found = await (await this.gpu.current()).timeline(copies);
    return { ...await this.report('memory'), timeline: found };
  }

  /** @param {'memory' | 'explain'} what */
  async report(what) {
    this.checkUsable();
    const found = await (await this.gpu.current()).ask(what);
    return what === 'memory' ? { ...found, page: this.pageRunner.bytes() } : found;
  }

  startProfiling() {
    this.checkUsable();
    this.trace ??= new Trace(performance.now(), 1, 1);
  }

  /** Prints the trace, as onnxruntime-web does. @returns {string} the trace, or "" if nothing is profiled */
  endProfiling() {
    const text = this.trace ? JSON.stringify(this.trace.events) : '';
    this.trace = null;
    if (text) console.log(text);
    return text;
  }

  // ── lifetime ──

  checkUsable() {
    if (this.lifetime.signal.aborted) throw new SessionFailed('the session was released', { hint: 'create another' });
    if (this.caller.gone) throw this.caller.failure();
  }

  async dispose() {
    if (this.lifetime.signal.aborted) return;
    this.lifetime.abort();
    this.rests?.end();
    droppedSessions.registry.unregister(this);
    this.pageRunner.release();
    const counted = this.metrics(); // for later reports
    await (await this.gpu.current()).release();
    await counted;
    this.watch.tell('state', { state: 'released' });
  }
}
