// A model in the thread that runs it: the worker or the page.

import { differingDims, withUnknownDims } from '../common/dim_names.js';
import { DeviceLost, InvalidInput, OutOfMemory, SessionFailed, UnsupportedSizes } from '../common/errors.js';
import { warn } from '../common/log.js';
import { explain } from '../runtime/explain.js';
import { Executor } from '../run/executor.js';
import { ResidentOutputs } from '../run/resident_outputs.js';
import { downloadFeeds, hasGpuTensors, saveChanged, uploadResults } from './gpu_feeds.js';
import { holders, withRoom } from './idle_models.js';
import { profile } from './profile.js';
import { PART, ProgramTable } from './program_table.js';
import { expanded, isGpuFull, runWithRecovery } from './recovery.js';
import { Specialiser } from './specialiser.js';
import { SessionState } from './states.js';
import { valuesOf } from './value_info.js';

/** @import { ProgramData } from '../common/program.js' */
/** @import { Fetch, ValueInfo, WireValue } from '../common/protocol.js' */
/** @import { Stop } from '../common/stop.js' */
/** @typedef {Record<string, WireValue>} Feeds */
/** @typedef {Record<string, Fetch>} Fetches */
/** @typedef {import('../common/maybe_promise.js').MaybePromise<Feeds>} Results */
/**
 * The weights that runs of a session change (web/worker/models/state_values.js).
 * @typedef {object} States
 * @property {(executor: Executor, names: string[], run: () => Results) => Promise<Feeds>} during
 * @property {() => Promise<void>} leave
 * @property {(executor: Executor) => void} drop
 * @property {() => boolean} isOnGpu
 */
/** What surrounds a run in its executor; it is repeated with the run. @typedef {(executor: Executor, run: () => Results) => Results} Around */

/** The cache key of a Program of some outputs. @param {string} key of the feeds @param {string[]} names */
const partKey = (key, names) => `${PART}${JSON.stringify([...names].sort())} ${key}`;

/** @type {Around} */
const plain = (_, run) => run();

export class Model {
  /**
   * @param {import('./compiler.js').Compiler} compiler @param {import('./compiler.js').WeightsOf} weights
   * @param {import('./compiler.js').SessionHost} host
   */
  constructor(compiler, weights, host) {
    this.compiler = compiler;
    this.weights = weights;
    this.host = host;
    Object.assign(this, valuesOf(compiler.info));
    /** Milliseconds of the phases of reading and compiling. @type {Record<string, number>} */
    this.phases = JSON.parse(compiler.timings);
    this.state = new SessionState();
    this.specialiser = new Specialiser(compiler, host.logOptions);
    this.table = new ProgramTable();
    /** Of all executors. @type {import('../runtime/planner.js').PlanCounts | null} */
    this.planCounts = null;
    /** Called after a Program was added, while later sessions of the same model can use it. @type {() => void} */
    this.onNewProgram = () => {};
    /** Stops the run in progress, or the start. @type {Stop | null} */
    this.stop = null;
    /** Of the run in progress. @type {Around} */
    this.around = plain;
    /** Times of the latest run. @type {import('../common/protocol.js').KernelTiming[]} */
    this.kernels = [];
    /** What has left the GPU after faults. @type {import('../runtime/recovery.js').Move[]} */
    this.moved = [];
    /** The GPU that the model has left after a fault. @type {import('../gpu/device.js').Gpu | null} */
    this.leftGpu = null;
    /** Of a session that trains: the weights that its runs change. @type {States | null} */
    this.trainer = null;
    /** When its last work ended, in milliseconds. */
    this.lastUsed = 0;
    /** The last executor's reports, once its memory was freed. @type {Pick<Executor, 'header' | 'env'> & { memory: ReturnType<Executor['memoryReport']> } | null} */
    this.freed = null;
  }

  /** @type {ValueInfo[]} */
  inputs = [];
  /** @type {ValueInfo[]} */
  outputs = [];
  /** @type {import('../common/protocol.js').About} */
  about = { uses: {}, unused: [], metadata: null };

  /** Opens the session: afterwards it accepts runs. @param {Stop | null} [stop] */
  start(stop = null) {
    this.stop = stop;
    const prepare = async () => { // unless recovery has done it
      if (!this.table.executors.size && !this.specialiser.needs) await this.prepare();
    };
    return this.state.finish(() => withRoom(this, () => runWithRecovery(this, prepare)));
  }

  /** Loads the Program for all feeds, if there is one. */
  async prepare() {
    const program = await this.specialiser.compileMain();
    if (program) await this.load('', program);
  }

  /** Compiles anew after a change that makes earlier Programs useless. @param {() => unknown} change */
  async recompile(change) {
    await this.change(change);
    await this.prepare();
  }

  /** Forgets all Programs. @param {() => unknown} change what makes them useless */
  async change(change) {
    await this.saveStates();
    this.table.clear();
    this.onNewProgram = () => {};
    await change();
  }

  /** @param {string} key @param {ProgramData} program @returns {Promise<Executor>} */
  async load(key, program) {
    this.table.add(key, program);
    Object.assign(this.phases, JSON.parse(program.python.timings));
    const host = { ...this.host, memoryLimit: this.memoryLeft() };
    const executor = await Executor.create(program, await this.weights(program), this.compiler, host, this.stop);
    executor.plan.counts = this.planCounts ??= executor.plan.counts;
    executor.held = new ResidentOutputs(executor.plan, executor.memory);
    this.table.executors.set(key, executor);
    holders.add(this);
    return executor;
  }

  // ── a run ──

  /**
   * @param {Feeds} feeds @param {Fetches} fetches @param {Stop | null} stop @param {Around} [around]
   * @returns {Promise<Feeds>} outputs
   */
  run(feeds, fetches, stop, around = plain) {
    return this.state.during(async () => {
      Object.assign(this, { stop, around, kernels: [] });
      const saved = saveChanged(this.host.gpu, feeds, fetches);
      const beforeRetry = (/** @type {import('../gpu/device.js').Gpu} */ { lost }) => {
        if (!lost || !hasGpuTensors({ ...feeds, ...fetches })) return saved?.restore();
        throw new DeviceLost(`tensors of this run are gone with their GPU device: ${lost}`);
      };
      const work = () => runWithRecovery(this, () => this.attempt(feeds, fetches), beforeRetry);
      const { added } = this.compiler;
      return withRoom(this, added ? () => added.repeated(this, work) : work).finally(() => saved?.release());
    });
  }

  /**
   * If memory is full, frees the other executors and the spare capacity of layouts, and tries again.
   * @param {Feeds} feeds @param {Fetches} fetches @returns {Promise<Feeds>}
   */
  async attempt(feeds, fetches) {
    try {
      return await this.runOnce(feeds, fetches);
    } catch (error) {
      if (!(error instanceof OutOfMemory) || isGpuFull(error)) throw error;
      await this.saveStates();
      const hasFreed = this.table.freeOthers();
      if (!this.table.executors.get(this.table.latestKey)?.plan.tighten() && !hasFreed) throw error;
      return this.runOnce(feeds, fetches);
    }
  }

  /** If the Program for all sizes refuses these, runs again with a Program for them. @param {Feeds} feeds @param {Fetches} fetches @returns {Promise<Feeds>} */
  async runOnce(feeds, fetches) {
    try {
      return await this.runWith(feeds, fetches, (known) => (this.hasAll(known) ? this.executorFor(known) : this.executorForSome(known, Object.keys(fetches))));
    } catch (error) {
      const { gpu, fallback = true } = this.host;
      if (!(error instanceof UnsupportedSizes) || gpu && !fallback || !this.hasAll(feeds)) throw error;
      return this.runWith(feeds, fetches, async (known) => {
        const executor = await this.executorForSizes(known);
        if (!executor) throw error;
        return executor;
      });
    }
  }

  /** @param {Feeds} feeds @param {Fetches} fetches @param {(feeds: Feeds) => Promise<Executor> | Executor} choose @returns {Promise<Feeds>} */
  async runWith(feeds, fetches, choose) {
    const differing = differingDims(this.inputs, feeds);
    if (differing.size) await this.splitDims(differing);
    const gpu = this.host.gpu ?? this.leftGpu;
    const { needs } = this.specialiser;
    if (needs && hasGpuTensors(feeds)) feeds = await downloadFeeds(gpu, feeds, (name) => !needs.values.includes(name));
    this.specialiser.checkValues(feeds);
    const executor = await choose(feeds);
    executor.memory.limit = this.memoryLeft(executor);
    if (hasGpuTensors(feeds)) feeds = await downloadFeeds(gpu, feeds, (name, item) => Boolean(executor.transfers?.keepsInput(name, item)));
    try {
      await executor.transfers?.prepare(feeds, fetches);
      const run = () => this.around(executor, () => executor.run(feeds, fetches, this.stop));
      const results = await (this.trainer ? this.trainer.during(executor, Object.keys(fetches), run) : run());
      return this.leftGpu ? uploadResults(this.leftGpu, fetches, results) : results;
    } catch (error) {
      executor.transfers?.abandon();
      throw error;
    } finally {
      this.stop?.disarm();
    }
  }

  /** @param {Feeds} feeds @returns {Promise<Executor> | Executor} */
  executorFor(feeds) {
    const { table } = this;
    const key = table.latestKey = this.specialiser.cacheKey(feeds);
    const program = table.programs.get(key);
    return table.executors.get(key) ?? (program ? this.load(key, program) : this.specialise(feeds));
  }

  /** The executor for the dims of these feeds alone, if there can be one. @param {Feeds} feeds @returns {Promise<Executor | null>} */
  async executorForSizes(feeds) {
    const { table, specialiser } = this;
    const key = specialiser.keyOfSizes(feeds);
    const program = table.programs.get(key) ?? await specialiser.forSizes(feeds, this.stop);
    if (!program) return null;
    table.latestKey = key;
    return table.executors.get(key) ?? this.load(key, program);
  }

  /** Whether no feed is missing. @param {Feeds} feeds */
  hasAll(feeds) {
    return this.inputs.every(({ name, optional, hasDefault }) => optional || hasDefault || Object.hasOwn(feeds, name));
  }

  /**
   * The executor for feeds that only some outputs need. The Program for all feeds runs the steps that these outputs need, so few
   * models have a Program for them: those that are compiled for values of feeds.
   * @param {Feeds} feeds @param {string[]} names @returns {Promise<Executor>}
   */
  async executorForSome(feeds, names) {
    const { table, specialiser } = this;
    const whole = specialiser.cacheKey(feeds) === '' ? await this.executorFor(feeds) : null;
    if (whole?.canRun(feeds, names)) return whole;
    const key = table.latestKey = partKey(specialiser.cacheKey(feeds), names);
    const program = table.programs.get(key);
    return table.executors.get(key) ?? (program ? this.load(key, program) : this.specialise(feeds, names));
  }

  /** @param {Feeds} feeds @param {string[]} [names] of the outputs, if the feeds suffice for these alone @returns {Promise<Executor>} */
  async specialise(feeds, names) {
    const program = await this.specialiser.specialise(feeds, this.stop, names);
    const key = this.specialiser.cacheKey(feeds);
    this.table.latestKey = names ? partKey(key, names) : key;
    const executor = await this.load(this.table.latestKey, program);
    this.onNewProgram();
    return executor;
  }

  /** From now on dims of one of these names are separate dims. @param {Map<string, string[]>} dims names of dims -> inputs */
  async splitDims(dims) {
    const texts = [...dims].map(([dim, inputs]) => (
      `dims named "${dim}" have different sizes in the inputs ${inputs.map((name) => `"${name}"`).join(', ')}`));
    const { compiler } = this;
    if (!compiler.splitDims || compiler.canCompile === false) throw new InvalidInput(texts[0], { hint: 'this Program was compiled for equal dims; open the model instead' });
    for (const text of texts) warn(`${text}; from now on they are taken as different dims`, this.host.logOptions);
    this.inputs = withUnknownDims(this.inputs, dims);
    await this.recompile(() => compiler.splitDims?.([...dims.keys()]));
  }

  // ── memory ──

  /** Bytes of linear memory that `executor`, or a new one, may have. @param {Executor} [executor] */
  memoryLeft(executor) {
    const { memoryLimit } = this.host;
    return memoryLimit ? memoryLimit - this.arenaBytes() + (executor?.arenaBytes() ?? 0) : Infinity;
  }

  arenaBytes() {
    return this.table.arenaBytes();
  }

  /** Frees memory. A linear memory cannot shrink, so the latest Program is loaded again; others are loaded when they next run. */
  trim() {
    return this.state.during(() => runWithRecovery(this, async () => {
      this.stop = null;
      const { table } = this;
      await this.trainer?.leave();
      table.freeOthers();
      const program = table.programs.get(table.latestKey);
      if (!program || !table.executors.get(table.latestKey)?.grown) return;
      table.releaseExecutors();
      this.host.gpu?.freePools();
      await this.load(table.latestKey, program);
    }));
  }

  /** Frees the memory of an idle model, whose next run loads its Program again. @returns {boolean} whether it held any */
  free() {
    const latest = this.table.latestExecutor;
    if (!latest || this.trainer?.isOnGpu()) return false; // values on the GPU cannot be read at once
    const { header, env } = latest;
    this.freed = { header, env, memory: { ...latest.memoryReport(), arena: 0, gpu: 0 } };
    this.table.releaseExecutors();
    return true;
  }

  /** From now on runs change weights. @param {States} trainer */
  train(trainer) {
    this.trainer = trainer;
    this.table.onRelease = (executor) => trainer.drop(executor);
  }

  /** Takes the weights that runs change from the executor that has them; if their GPU is lost, they are lost. */
  async saveStates() {
    if (this.trainer && !this.host.gpu?.lost) await this.trainer.leave().catch(() => {}); // `drop` tells that they are lost
  }

  release() {
    this.trainer = null;
    this.table.onRelease = () => {};
    this.state.enter('released');
    holders.delete(this);
    this.table.clear();
    this.compiler.destroy();
  }

  // ── reports ──

  /** How the model was compiled (docs/explain.md). @returns {Record<string, unknown>} */
  explain() {
    const { latest: { header, env }, phases, host: { gpu, named = ['wasm'], whyNotGpu = '', trial }, compiler: { added } } = this;
    const moved = [...this.moved, ...added?.moved ?? []];
    const found = expanded(named).filter((name) => name !== 'webgpu' || gpu);
    const used = found.length ? found.slice(0, found.indexOf('wasm') + 1 || undefined) : ['wasm'];
    const why = moved.find(({ node }) => !node)?.reason ?? (trial?.why || whyNotGpu);
    return { ...explain(header, env, moved), providers: { named, used, why }, phases };
  }

  /** @returns {import('../common/protocol.js').EngineCounts} */
  metrics() {
    const { table, host: { gpu }, state: { recovered }, compiler: { compiled = 0 } } = this;
    const { runs, planned } = this.planCounts ?? { runs: 0, planned: 0 };
    const onGpu = gpu ? [...table.executors.values()].reduce((sum, executor) => sum + (executor.gpu?.memory.size ?? 0), 0) : 0;
    return { recovered, compiled, runs, planned, bytes: table.arenaBytes() + onGpu };
  }

  /** Times every kernel call of a run. @type {Around} */
  timed = (executor, run) => profile(executor, run, this.kernels);

  /** @param {Feeds} feeds @param {number} repeat how often each kernel on the GPU runs */
  async profile(feeds, repeat) {
    await this.run(feeds, {}, null, (executor, run) => profile(executor, run, this.kernels, repeat));
    return this.kernels;
  }

  /**
   * Compiles for these feeds.
   * @param {Feeds} feeds
   * @returns {Promise<{ feeds: Feeds, described: object }>} feeds: on the CPU; described: the feeds as the compiler gets them
   */
  compileFor(feeds) {
    return this.state.during(() => withRoom(this, () => runWithRecovery(this, async () => {
      this.stop = null;
      const onCpu = await downloadFeeds(this.host.gpu ?? this.leftGpu, feeds, () => false);
      await this.executorFor(onCpu);
      return { feeds: onCpu, described: this.specialiser.describe(onCpu) };
    })));
  }

  /**
   * Work with the executor of the latest Program, which is loaded again if its memory was freed; undefined if there is no Program yet.
   * @template T @param {(executor: Executor | undefined) => Promise<T>} work @returns {Promise<T>}
   */
  withLatest(work) {
    return this.state.during(() => withRoom(this, () => runWithRecovery(this, async () => {
      this.stop = null;
      const { table } = this;
      const key = table.programs.has(table.latestKey) ? table.latestKey : [...table.programs.keys()].pop() ?? '';
      const program = table.programs.get(key);
      return work(table.latestExecutor ?? (program && await this.load(key, program)));
    })));
  }

  /** Header and values of symbols of the latest run. */
  get latest() {
    const latest = this.table.latestExecutor ?? this.freed;
    if (!latest) throw new SessionFailed('this model is compiled when it first runs', { hint: 'run it once' });
    return latest;
  }

  memoryReport() {
    const { latest } = this;
    return latest instanceof Executor ? latest.memoryReport() : latest.memory;
  }
}
