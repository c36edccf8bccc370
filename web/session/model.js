// A model where it runs, in the worker or in the page: its Program, or one for each set of values that its compilation
// needs, and their executors.

import { downloadFeeds, hasGpuTensors } from './gpu_feeds.js';
import { freeSpare } from '../run/arena.js';
import { Executor } from '../run/executor.js';
import { HeldOutputs, nameOf, StaleFeeds } from '../run/held.js';
import { DeviceLost, InvalidInput, OutOfMemory, SessionFailed } from '../common/errors.js';
import { during, warn } from '../common/log.js';
import { acquireGpu } from '../gpu/device.js';
import { profile } from './profile.js';
import { differingDims, withDimsApart } from '../common/dim_names.js';
import { describeFeed, programKey } from '../common/flat_feeds.js';

/** @typedef {import('../common/program.js').ProgramData} ProgramData */
/** @typedef {import('../common/protocol.js').Fetch} Fetch */
/** @typedef {import('../common/protocol.js').ValueInfo} ValueInfo */
/** @typedef {import('../common/protocol.js').WireTensor} WireTensor */
/** @typedef {import('../common/protocol.js').WireValue} WireValue */
/** @typedef {import('./compiler.js').Compiler} Compiler */
/** @typedef {import('../run/environment.js').Host} Host */
/** @typedef {import('../common/stop.js').Stop} Stop */
/** @typedef {{ kind: string, dtype?: string | null, dims?: (number | string | null)[] | null, of?: Type, classes?: (string | number)[] }} Type */

const PROGRAMS = 16; // for different values, before the oldest is forgotten

export class Model {
  /** @param {Compiler} python @param {import('./compiler.js').Compiled} proxy @param {import('./compiler.js').WeightsOf} weights @param {Host} host */
  constructor(python, proxy, weights, host) {
    this.python = python;
    this.proxy = proxy;
    this.weights = weights;
    this.host = host;
    Object.assign(this, valuesOf(proxy.info));
    /** Milliseconds of the phases of reading and compiling. @type {Record<string, number>} */
    this.phases = JSON.parse(proxy.timings);
    /** By the values they were compiled for. @type {Map<string, ProgramData>} */
    this.programs = new Map();
    /** Of programs; made again after a fault. @type {Map<string, Executor>} */
    this.executors = new Map();
    /** @type {import('../common/protocol.js').Needs | null} null: one Program for all feeds */
    this.needs = null;
    /** Told when there are more Programs, as long as they are for the model as it is. @type {() => void} */
    this.grown = () => {};
    /** The Program used last. */
    this.used = '';
    /** Of the run in progress, or of the start. @type {Stop | null} */
    this.stop = null;
    /** Whether kernels of the run in progress are timed, and their times. */
    this.timed = false;
    /** @type {import('../common/protocol.js').KernelTiming[]} */
    this.kernels = [];
    /** Why there is no GPU any more. */
    this.lost = '';
  }

  /** @type {ValueInfo[]} */
  inputs = [];
  /** @type {ValueInfo[]} */
  outputs = [];

  /** After `prepare` the model runs; a fault of the GPU meanwhile is met as in a run. @param {Stop | null} [stop] */
  async start(stop = null) {
    this.stop = stop;
    try {
      await this.prepare();
    } catch (error) {
      if (!this.host.gpu || !(await this.recover(error))) throw error;
      if (!this.executors.size && !this.needs) await this.lastTry(() => this.prepare());
    }
  }

  /** Makes the Program ready, if there is one for all feeds. */
  async prepare() {
    const program = await during(this.host.said, () => this.python.main(this.proxy));
    const needs = JSON.parse(this.proxy.needs);
    this.needs = needs.defaults?.length === 0 ? null : needs;
    if (program) await this.add('', program);
  }

  /** @param {string} key @param {ProgramData} program @returns {Promise<Executor>} */
  async add(key, program) {
    this.programs.set(key, program);
    Object.assign(this.phases, JSON.parse(program.python.timings));
    const executor = await Executor.create(program, await this.weights(program), this.python, { ...this.host, memoryLimit: this.room() }, this.stop);
    executor.held = new HeldOutputs(executor.plan);
    this.executors.set(key, executor);
    return executor;
  }

  // ── a run ──

  /**
   * @param {Record<string, WireValue>} feeds
   * @param {Record<string, Fetch>} fetches
   * @param {Stop | null} stop
   * @param {boolean} [timed] whether its kernels are timed
   * @returns {Promise<Record<string, WireValue>>}
   */
  async run(feeds, fetches, stop, timed = false) {
    this.stop = stop;
    this.timed = timed;
    this.kernels = [];
    const { gpu } = this.host;
    if (!gpu) {
      if (this.lost) this.refuseBuffers(feeds, fetches, this.lost);
      return this.attempt(feeds, fetches);
    }
    try {
      gpu.alive();
      return await this.attempt(feeds, fetches);
    } catch (error) {
      if (!(await this.recover(error))) throw error;
    }
    this.refuseBuffers(feeds, fetches, gpu.lost);
    try {
      return await this.lastTry(() => this.attempt(feeds, fetches));
    } catch (error) {
      if (!this.host.gpu?.lost) throw error;
      await this.fallBack(/** @type {Error} */ (error).message);
      return this.attempt(feeds, fetches);
    }
  }

  /** Tensors on a device that was lost. @param {Record<string, WireValue>} feeds @param {Record<string, Fetch>} fetches @param {string} lost why; "": none was */
  refuseBuffers(feeds, fetches, lost) {
    if (lost && hasGpuTensors({ ...feeds, ...fetches })) throw new DeviceLost(`tensors of this run are gone with their GPU device: ${lost}`);
  }

  /** A full memory is tried once more without what only other feeds need, or shapes that grow. @param {Record<string, WireValue>} feeds @param {Record<string, Fetch>} fetches @returns {Promise<Record<string, WireValue>>} */
  async attempt(feeds, fetches) {
    try {
      return await this.once(feeds, fetches);
    } catch (error) {
      if (!(error instanceof OutOfMemory) || isFull(error)) throw error;
      const dropped = this.dropOthers();
      if (!this.executors.get(this.used)?.plan.tighten() && !dropped) throw error;
      return this.once(feeds, fetches);
    }
  }

  /** @param {Record<string, WireValue>} feeds @param {Record<string, Fetch>} fetches @returns {Promise<Record<string, WireValue>>} */
  async once(feeds, fetches) {
    const apart = differingDims(this.inputs, feeds);
    if (apart.size) await this.takeApart(apart);
    const { needs } = this;
    if (needs && hasGpuTensors(feeds)) feeds = await downloadFeeds(this.host.gpu, feeds, (name) => !needs.values.includes(name));
    this.checkNamed(feeds);
    const executor = await this.executor(feeds);
    executor.plan.memory.limit = this.room(executor);
    if (hasGpuTensors(feeds)) feeds = await downloadFeeds(this.host.gpu, feeds, (name, item) => Boolean(executor.transfers?.keepsInput(name, item)));
    try {
      await executor.transfers?.prepare(feeds, fetches);
      const run = () => executor.run(feeds, fetches, this.stop);
      return this.timed ? await profile(executor, run, this.kernels) : await run();
    } catch (error) {
      executor.transfers?.abandon();
      throw error;
    } finally {
      this.stop?.disarm();
    }
  }

  /** What is compiled for values has to know them. @param {Record<string, WireValue>} feeds */
  checkNamed(feeds) {
    for (const name of this.needs?.values ?? []) if (nameOf(feeds[name] ?? null)) throw new StaleFeeds(name);
  }

  /** @param {Record<string, WireValue>} feeds @returns {Promise<Executor> | Executor} */
  executor(feeds) {
    const key = programKey(feeds, this.needs);
    this.used = key;
    const known = this.executors.get(key);
    if (known) return known;
    const program = this.programs.get(key);
    return program ? this.add(key, program) : this.specialise(feeds);
  }

  /** From now on dims of these names are different ones. @param {Map<string, string[]>} dims */
  async takeApart(dims) {
    const texts = [...dims].map(([dim, inputs]) => `dims named "${dim}" have different sizes in the inputs ${inputs.map((name) => `"${name}"`).join(', ')}`);
    if (!this.python.takeApart) throw new InvalidInput(texts[0], { hint: 'the Program takes them for one; open the model' });
    this.grown = () => {};
    for (const text of texts) warn(`${text}; from now on they are taken as different dims`, this.host.said);
    this.drop();
    this.forgetAll();
    this.inputs = withDimsApart(this.inputs, dims);
    await this.python.takeApart(this.proxy, [...dims.keys()]);
    await this.prepare();
  }

  // ── faults of the GPU ──

  /** Makes ready for another try, if that can help: a new device, or memory. @param {unknown} error @returns {Promise<boolean>} */
  async recover(error) {
    const gpu = /** @type {import('../gpu/device.js').Gpu} */ (this.host.gpu);
    if (gpu.lost ? !gpu.ours : !isFull(error)) return false;
    await this.forgetBuffers();
    const next = gpu.lost ? await acquireGpu() : gpu;
    if (next) this.host = { ...this.host, gpu: next };
    else await this.fallBack(/** @type {Error} */ (error).message);
    return true;
  }

  /** After which a GPU that is full again leaves nothing behind. @template T @param {() => Promise<T>} action @returns {Promise<T>} */
  async lastTry(action) {
    try {
      return await action();
    } catch (error) {
      if (isFull(error)) await this.forgetBuffers();
      throw error;
    }
  }

  /** From now on without the GPU. @param {string} reason */
  async fallBack(reason) {
    warn(`${reason}; the session continues on WebAssembly`, this.host.said);
    this.drop();
    this.forgetAll();
    this.grown = () => {};
    this.lost = this.host.gpu?.lost ?? '';
    this.host = { ...this.host, gpu: null };
    await this.python.fallBack(this.proxy);
    await this.prepare();
  }

  /** After the GPU was full or lost: buffers may be invalid, and what follows from that is told later. */
  async forgetBuffers() {
    this.drop();
    this.host.gpu?.freePools();
    await this.host.gpu?.settle();
  }

  /** Frees the memory of all executors; they are made again when they are needed. */
  drop() {
    for (const executor of this.executors.values()) executor.release();
    this.executors.clear();
  }

  // ── memory ──

  /** Bytes of linear memory that a new executor, or this one, may have. @param {Executor} [executor] */
  room(executor) {
    const { memoryLimit } = this.host;
    return memoryLimit ? memoryLimit - this.arenaBytes() + (executor?.arenaBytes() ?? 0) : Infinity;
  }

  /** Frees the executors of Programs that are not in use, and memories without a session. Whether there were any. */
  dropOthers() {
    const others = [...this.executors].filter(([key]) => key !== this.used);
    for (const [key, executor] of others) {
      executor.release();
      this.executors.delete(key);
    }
    return freeSpare() || others.length > 0;
  }

  /** Memories cannot shrink, so the Program used last gets a new one, with its constants; others do when they are needed. */
  async trim() {
    this.stop = null;
    this.dropOthers();
    const program = this.programs.get(this.used);
    if (!program || !this.executors.get(this.used)?.grown) return;
    this.drop();
    this.host.gpu?.freePools();
    await this.add(this.used, program);
  }

  // ── compiling ──

  /** A run with every kernel call timed. @param {Record<string, WireValue>} feeds */
  async profile(feeds) {
    await this.run(feeds, {}, null, true);
    return this.kernels;
  }

  /** Compiles for these feeds; what has to be known may grow meanwhile. @param {Record<string, WireValue>} feeds @returns {Promise<Executor>} */
  async specialise(feeds) {
    for (;;) {
      this.checkNamed(feeds);
      const program = await during(this.host.said, () => this.python.specialise(this.proxy, this.describe(feeds), this.stop));
      this.needs = /** @type {import('../common/protocol.js').Needs} */ (JSON.parse(this.proxy.needs));
      if (!program) continue;
      const [oldest] = this.programs.keys();
      if (this.programs.size >= PROGRAMS) this.forget(oldest);
      this.used = programKey(feeds, this.needs);
      const executor = await this.add(this.used, program);
      this.grown();
      return executor;
    }
  }

  /** As Python is told of them. @param {Record<string, WireValue>} feeds */
  describe(feeds) {
    const values = this.needs?.values ?? [];
    return Object.fromEntries(Object.entries(feeds).map(([name, feed]) => [name, describeFeed(feed, values.includes(name), false)]));
  }

  /** Feeds on the CPU, and as Python is told of them. @param {Record<string, WireValue>} feeds */
  async given(feeds) {
    this.stop = null;
    const here = await downloadFeeds(this.host.gpu, feeds, () => false);
    await this.executor(here);
    return { feeds: here, described: this.describe(here) };
  }

  /** The Program used last, for reports. @returns {Executor} */
  get latest() {
    const latest = this.executors.get(this.used) ?? [...this.executors.values()].pop();
    if (!latest) throw new SessionFailed('this model is compiled when it first runs', { hint: 'run it once' });
    return latest;
  }

  arenaBytes() {
    return [...this.executors.values()].reduce((sum, executor) => sum + executor.arenaBytes(), 0);
  }

  /** @param {string} key */
  forget(key) {
    this.executors.get(key)?.release();
    this.executors.delete(key);
    this.programs.get(key)?.python?.destroy();
    this.programs.delete(key);
  }

  forgetAll() {
    for (const key of [...this.programs.keys()]) this.forget(key);
  }

  release() {
    this.forgetAll();
    this.proxy.destroy();
  }
}

/** Inputs and outputs of a model. @param {string} info as its compiler tells of them @returns {{ inputs: ValueInfo[], outputs: ValueInfo[] }} */
export function valuesOf(info) {
  const { inputs, outputs } = JSON.parse(info);
  return { inputs: inputs.map(valueInfo), outputs: outputs.map(valueInfo) };
}

/** @param {{ name: string, default?: boolean, map?: import('../common/protocol.js').MapInfo } & Type} type @returns {ValueInfo} */
function valueInfo({ name, default: hasDefault, map, ...type }) {
  const optional = type.kind === 'optional';
  const inner = /** @type {Type} */ (optional ? type.of : type);
  const sequence = inner.kind === 'sequence';
  const tensor = /** @type {Type} */ (sequence ? inner.of : inner);
  return { name, dtype: tensor.dtype ?? null, shape: tensor.dims ?? null, optional, sequence, hasDefault, map, classes: type.classes };
}

/** Whether the GPU's memory was full. @param {unknown} error */
function isFull(error) {
  return error instanceof OutOfMemory && 'gpu' in error;
}
