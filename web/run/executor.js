// Runs a Program in the browser, without Python except for host steps. Twin of pyruntime/native/execution/executor.py.

import { bindDims, checkDims, feedOf } from './input_dims.js';
import { SHARED, ThreadTrial } from './thread_trial.js';
import { runIf, runLoop } from './control.js';
import { evaluate, evaluateAll } from '../common/dims.js';
import { exactNumbers, fromNumbers, load, numbers, store } from '../common/elements.js';
import { ExecutionError, outOfRange, ShapeError } from '../common/errors.js';
import { TICK } from '../common/stop.js';
import { gpuBuffer } from '../common/protocol.js';
import { andThen } from '../common/maybe_promise.js';
import { CODES_READ, FAULT, FAULT_BYTES, PANEL_ORDER } from '../common/linear_memory.js';
import { mark } from '../common/marks.js';
import { OrderTrial } from '../runtime/order_trial.js';
import { MAIN, MOST, OutputPaths } from '../runtime/output_paths.js';
import { loadNow, loadProgram, runInit } from './load_program.js';
import { buffersOf, Planner } from '../runtime/planner.js';
import { runInPortions } from './portions.js';
import { bindRooms, gather, rangesOf, scatter } from './room.js';

/**
 * Milliseconds that code runs on one thread before others join, because V8's optimising compiler needs the other core:
 * with two threads on two cores from the start, ResNet-50 took 293 ms a run for seconds, then 90. Fifty short
 * calls suffice, too.
 */
const WARM = 400;

const SHAPES = 8; // shapes of runs whose argument blocks are memoised

/** @template T @typedef {import('../common/maybe_promise.js').MaybePromise<T>} MaybePromise */
/** @import { TensorValue, Value } from '../common/program.js' */
/** @import { Fetch, HostArray, WireTensor, WireValue } from '../common/protocol.js' */
/** @import { Stop } from '../common/stop.js' */
/** @import { OutputPath } from '../runtime/output_paths.js' */
/** @import { State } from '../runtime/states.js' */

export class Executor {
  /**
   * @param {import('../common/program.js').ProgramData} program
   * @param {import('./environment.js').HostSteps | null} python for host steps
   * @param {import('./memory.js').Memory} memory
   * @param {Record<string, (table: number, tid: number, threads: number, epoch: number) => void>} code
   * @param {import('./types.js').GpuRunner | null} gpu
   */
  constructor(program, python, memory, code, gpu = null) {
    this.program = program;
    this.header = program.header;
    this.python = python;
    this.code = code;
    this.gpu = gpu;
    this.warm = 0;
    this.memory = memory;
    this.plan = new Planner(program.header, memory, gpu, SHAPES);
    this.transfers = gpu && gpu.transfers(this);
    /** Strings of constants and of the current run, by buffer. @type {Map<number, (string | number)[]>} */
    this.hostConstants = new Map();
    /** @type {Map<number, (string | number)[]>} */
    this.hosts = new Map();
    /** Values of symbols in the last run. @type {import('../common/dims.js').Env} */
    this.env = new Map();
    /** Runs code on several threads. @type {import('../threads/pool.js').ThreadTeam | null} */
    this.team = null;
    this.paths = new OutputPaths(program.header);
    /** What the current run does, or the last one. */
    this.path = this.paths.whole;
    this.trial = new ThreadTrial();
    this.orders = new OrderTrial();
    /** Those of other paths: they compare times of whole runs. @type {Map<string, { trial: ThreadTrial, orders: OrderTrial }>} */
    this.trials = new Map();
    /** Bytes of linear memory before the first run. */
    this.begun = 0;
    /** Can stop the current run. @type {Stop | null} */
    this.stop = null;
    /** Names of the steps that change the states of the current run. @type {Set<string>} */
    this.changing = new Set();
    this.hasChangedStates = false; // whether the current run has begun to
    /** Outputs of earlier runs, which later runs may take as feeds in place. @type {import('./resident_outputs.js').ResidentOutputs | null} */
    this.held = null;
  }

  /**
   * @param {import('../common/program.js').ProgramData} program
   * @param {import('./environment.js').ReadFile} read
   * @param {import('./environment.js').HostSteps | null} python for host steps
   * @param {import('./environment.js').Host} host
   * @param {Stop | null} [stop]
   * @returns {Promise<Executor>}
   */
  static async create(program, read, python, host, stop = null) {
    const { memory, code, gpu, team } = await loadProgram(program, host);
    const executor = new Executor(program, python, memory, code, gpu);
    executor.team = team;
    executor.stop = stop;
    try {
      await runInit(executor, read);
      gpu?.memory.flush();
      await gpu?.memory.throwErrors();
      executor.begun = executor.arenaBytes();
      mark('constants folded');
      return executor;
    } catch (error) {
      executor.release();
      throw error;
    } finally {
      stop?.disarm();
      executor.stop = null;
    }
  }

  /**
   * A synchronous `create`, for Pyodide: one thread, no GPU.
   * @param {import('../common/program.js').ProgramData} program @param {import('./environment.js').ReadFile} read
   * @param {import('./environment.js').HostSteps} python whose host steps are synchronous @param {number} memoryLimit
   */
  static createNow(program, read, python, memoryLimit) {
    const { memory, code } = loadNow(program, memoryLimit);
    const executor = new Executor(program, python, memory, code);
    try {
      runInit(executor, read);
      return executor;
    } catch (error) {
      executor.release();
      throw error;
    }
  }

  // ── runs ──

  /**
   * Runs the Program. Synchronous unless it must wait for the GPU.
   * @param {Record<string, WireValue>} feeds
   * @param {Record<string, Fetch>} fetches
   * @param {Stop | null} [stop]
   * @returns {MaybePromise<Record<string, WireTensor | WireTensor[] | null>>}
   */
  run(feeds, fetches, stop = null) {
    this.stop = stop;
    const path = this.paths.find(Object.keys(fetches));
    if (path !== this.path) this.takePath(path);
    const cold = this.warm < WARM;
    const { orders, team, trial } = this;
    const { best } = orders;
    const counts = !cold && (!team || trial.isSettled); // only one trial at a time
    const order = counts ? orders.order : best;
    this.word(PANEL_ORDER)[0] = order;
    this.word(CODES_READ)[0] = 0;
    const start = performance.now();
    const once = () => this.runOnce(feeds, fetches);
    return andThen(this.program.parts?.during?.(this, once) ?? once(), (results) => {
      const taken = performance.now() - start;
      if (counts) orders.took(this.word(CODES_READ)[0], taken, team !== null && trial.current === SHARED);
      if (team && cold) trial.tookCold(taken);
      else if (team && order === best) trial.took(taken);
      return results;
    });
  }

  /** From now on runs take this path. @param {OutputPath} path */
  takePath(path) {
    const { trial, orders } = this;
    if (this.trials.size > MOST) this.trials.clear();
    this.trials.set(this.path.suffix, { trial, orders });
    this.path = path;
    Object.assign(this, this.trials.get(path.suffix) ?? { trial: new ThreadTrial(), orders: new OrderTrial() });
  }

  /** Whether these feeds suffice for these outputs. @param {Record<string, WireValue>} feeds @param {string[]} names */
  canRun(feeds, names) {
    return this.paths.find(names).inputs.every(({ name }) => Object.hasOwn(feeds, name));
  }

  /** A word of linear memory. @param {number} address */
  word(address) {
    return new Int32Array(this.memory.bytes.buffer, address, 1);
  }

  /**
   * @param {Record<string, WireValue>} feeds
   * @param {Record<string, Fetch>} fetches
   * @returns {MaybePromise<Record<string, WireTensor | WireTensor[] | null>>}
   */
  runOnce(feeds, fetches) {
    this.plan.limit();
    this.hosts = new Map(this.hostConstants);
    this.transfers?.beginRun(feeds, fetches);
    const { inputs } = this.path;
    const run = this.held?.begin(feeds, inputs) ?? { root: this.plan.root, feeds, places: new Map(), there: new Set() };
    for (const [buffer, places] of this.transfers?.beginCaches(run.feeds, inputs) ?? []) {
      run.places.set(buffer, places);
      run.there.add(buffer);
    }
    const state = this.bindInputs(run);
    for (const input of inputs) if (!run.there.has(input.buffer)) this.write(state, input, /** @type {WireTensor} */ (feedOf(run.feeds, input)));
    return andThen(this.runBlock(MAIN, state), (last) => this.results(last, fetches));
  }

  /** Collects the results. @param {State} state @param {Record<string, Fetch>} fetches @returns {MaybePromise<Record<string, WireTensor | WireTensor[] | null>>} */
  results(state, fetches) {
    this.gpu?.memory.flush();
    // a run that failed is repeated, so nothing may be written to the caller's tensors before
    if (this.gpu?.memory.hasPendingErrors) return this.gpu.memory.throwErrors().then(() => this.collect(state, fetches));
    return this.collect(state, fetches);
  }

  /** @param {State} state @param {Record<string, Fetch>} fetches @returns {MaybePromise<Record<string, WireTensor | WireTensor[] | null>>} */
  collect(state, fetches) {
    this.env = state.env;
    const wanted = this.header.outputs.filter(({ name }) => Object.hasOwn(fetches, name));
    const results = Object.fromEntries(wanted.map(({ name, value }) => [name, this.output(state, value, name, fetches[name])]));
    this.held?.leave(state, results, fetches);
    this.gpu?.memory.flush();
    this.gpu?.releaseBorrowed();
    this.transfers?.endRun();
    return this.gpu?.memory.hasPendingErrors ? this.gpu.memory.throwErrors().then(() => results) : results;
  }

  /** Sets symbols from the inputs' dims, and allocates the inputs. @param {import('./resident_outputs.js').Begin} run */
  bindInputs({ root, feeds, places, there }) {
    const { header: { symbols }, path: { inputs, suffix } } = this;
    const given = inputs.map((input) => feedOf(feeds, input)?.dims);
    const key = `${given.map((dims) => dims?.join()).join(';')}|${[...places].join(';')}|${[...there].join()}${suffix}`;
    return this.plan.advance(root, key, (next) => {
      inputs.forEach(({ name, dims }, n) => bindDims(name, dims, given[n], next.env));
      inputs.forEach(({ name, dims }, n) => checkDims(name, dims, given[n] ?? [], next.env, symbols));
      this.plan.guards.compute(next.env, new Set(next.env.keys()));
      bindRooms(this.plan, inputs, next.env, places);
      this.plan.guards.bound(next.env, new Set(next.env.keys()));
      this.plan.take(next, buffersOf(inputs).filter((buffer) => !there.has(buffer)));
    });
  }

  /** @param {State} state @param {TensorValue | import('../common/program.js').Input} value @param {WireTensor} feed */
  write(state, value, { data }) {
    const { buffer, dtype, room } = value;
    if (Array.isArray(data)) this.hosts.set(buffer, data);
    else if ('gpu' in data) return;
    else if (room) scatter(data, this.bytes(state, buffer), rangesOf(value, state.env));
    else store(data, dtype, this.bytes(state, buffer));
  }

  /** @param {State} state @param {Value} value @param {string} [name] @param {Fetch} [fetch] @returns {WireTensor | WireTensor[] | null} */
  output(state, value, name = '', fetch = null) {
    if (!value) return null;
    if ('items' in value) return value.items.map((item) => /** @type {WireTensor} */ (this.output(state, item)));
    const kept = fetch && this.transfers?.output(name, value, state);
    if (kept) return kept;
    const target = typeof fetch === 'object' && fetch && !gpuBuffer(fetch.data) ? fetch : null;
    const host = this.hosts.get(value.buffer);
    const dims = evaluateAll(value.dims, state.env);
    if (dims.some((n) => n < 0)) throw new ShapeError(`an output cannot have the shape [${dims.join(', ')}]`);
    if (host) return { type: value.dtype, dims, data: /** @type {string[]} */ (host) };
    const bytes = this.bytes(state, value.buffer);
    if (value.room && this.held?.isInput(value.buffer) && !fetch) return this.held.output(value, dims, bytes, state.env);
    if (value.room) return load(gather(bytes, rangesOf(value, state.env)), value.dtype, dims, target, true);
    return load(bytes, value.dtype, dims, target);
  }

  // ── steps ──

  /** @param {number} number @param {State} state @param {number} [from] the first step @returns {MaybePromise<State>} */
  runBlock(number, state, from = 0) {
    const { steps, suffix } = number === MAIN ? this.path : { steps: this.header.blocks[number].steps, suffix: '' };
    for (let i = from; i < steps.length; i++) {
      const after = this.runStep(steps[i], state, `${number}.${i}${suffix}`);
      if (after instanceof Promise) return after.then((next) => this.runBlock(number, next, i + 1));
      state = after;
    }
    return state;
  }

  /** @param {import('../common/program.js').Step} step @param {State} state @param {string} key @returns {MaybePromise<State>} */
  runStep(step, state, key) {
    const turn = this.stop?.yieldIfDue();
    return turn ? turn.then(() => this.takeStep(step, state, key)) : this.takeStep(step, state, key);
  }

  /** @param {import('../common/program.js').Step} step @param {State} state @param {string} key @returns {MaybePromise<State>} */
  takeStep(step, state, key) {
    if (this.changing.size && 'fn' in step && this.changing.has(step.fn) && !this.hasChangedStates) {
      if (step.op === 'gpu') this.planned(step, state, key);
      if (this.gpu?.memory.growths.length) return this.gpu.memory.throwErrors().then(() => this.takeStep(step, state, key)); // without room, states stay
      this.hasChangedStates = true;
    }
    if (step.op === 'wasm') return this.runWasm(step, state, key);
    if (step.op === 'gpu') return this.runGpu(step, state, key);
    if (step.op === 'copy') return /** @type {import('./types.js').Transfers} */ (this.transfers).run(step, state, key);
    if (step.op === 'read') return this.runRead(step, state, key);
    if (step.op === 'host') return this.runHost(step, state, key);
    return step.op === 'if' ? runIf(this, step, state, key) : runLoop(this, step, state, key);
  }

  /** @param {import('../common/program.js').WasmStep} step @param {State} state @param {string} key @returns {MaybePromise<State>} */
  runWasm(step, state, key) {
    let found = state.next.get(key);
    if (!found || found.generation !== this.plan.tables.generation) found = this.plan.planCalls(step, state, key);
    const { state: after } = found;
    const done = () => {
      this.checkFaults();
      return after;
    };
    try {
      if (this.team && this.shares(found)) this.together(this.team, step, found);
      else if (this.stop) return this.stoppable(step, found, this.stop).then(done, (error) => this.refuse(step, error));
      else this.alone(step.fn, found.table);
    } catch (error) {
      this.refuse(step, error);
    }
    return done();
  }

  /** Throws ExecutionError if a kernel found an index out of range, and clears the record for the next run. */
  checkFaults() {
    if (!this.header.checked.length) return;
    const { bytes } = this.memory;
    const record = new DataView(bytes.buffer, FAULT, FAULT_BYTES);
    const node = record.getInt32(0, true);
    if (!node) return;
    const error = outOfRange(this.header.checked[node - 1] ?? '', record.getBigInt64(8, true), record.getInt32(4, true));
    bytes.fill(0, FAULT, FAULT + FAULT_BYTES);
    throw error;
  }

  /** @param {import('../common/program.js').WasmStep} step @param {unknown} error @returns {never} */
  refuse(step, error) {
    this.stop?.check();
    throw new ExecutionError(`${step.fn} stopped: ${/** @type {Error} */ (error).message}`, { node: step.calls.length === 1 ? step.calls[0].node : '', cause: error });
  }

  /** @param {import('../common/program.js').GpuStep} step @param {State} state @param {string} key */
  planned(step, state, key) {
    const found = state.next.get(key);
    return found?.prepared ? found : this.plan.planDispatches(step, state, key);
  }

  /** @param {import('../common/program.js').GpuStep} step @param {State} state @param {string} key @returns {MaybePromise<State>} */
  runGpu(step, state, key) {
    const gpu = /** @type {import('./types.js').GpuRunner} */ (this.gpu);
    const found = this.planned(step, state, key);
    const { state: after } = found;
    const prepared = /** @type {import('./types.js').PreparedStep} */ (found.prepared);
    this.transfers?.createOutputs(step, after);
    if (gpu.timer) return gpu.timer.run(prepared, this.stop).then(() => after);
    if (this.stop) return gpu.runInPortions(prepared, this.stop).then(() => after);
    gpu.run(prepared);
    return after;
  }

  /** Runs code on this thread, and measures its time while the code is new. @param {string} fn @param {number} table */
  alone(fn, table) {
    const start = this.warm < WARM ? performance.now() : 0;
    this.code[fn](table, 0, 1, 0);
    if (start) this.warm += Math.max(performance.now() - start, WARM / 50);
  }

  /** Runs code on this thread in portions, so that it can be stopped. @param {import('../common/program.js').WasmStep} step @param {import('../runtime/states.js').Transition} plan @param {Stop} stop */
  async stoppable(step, plan, stop) {
    const start = performance.now();
    await runInPortions(this, step, plan, stop);
    plan.layout.duration = performance.now() - start;
    if (this.warm < WARM) this.warm += Math.max(performance.now() - start, WARM / 50);
  }

  /**
   * Runs code on all threads. A long step checks whether to stop.
   * @param {import('../threads/pool.js').ThreadTeam} team @param {import('../common/program.js').WasmStep} step @param {import('../runtime/states.js').Transition} plan
   */
  together(team, { fn }, plan) {
    if (this.stop && plan.layout.duration >= TICK) this.stop.arm(team.sync);
    const start = performance.now();
    team.run(fn, plan.table, this.trial.isLong);
    plan.layout.duration = performance.now() - start;
  }

  /** Whether to share a step: it is worth several threads, the trial chose them, and V8 no longer needs the other core. @param {import('../runtime/states.js').Transition} plan */
  shares({ isParallel }) {
    return isParallel && this.warm >= WARM && this.trial.current === SHARED;
  }

  /** @param {import('../common/program.js').ReadStep} step @param {State} state @param {string} key @returns {State} */
  runRead(step, state, key) {
    const values = this.readNumbers(state, step.value);
    return this.plan.advance(state, `${key}:${values.join()}`, (next) => {
      step.symbols.forEach((symbol, i) => next.env.set(symbol, values[i]));
      this.plan.guards.bound(next.env, new Set(step.symbols));
      next.drop(step.free);
    });
  }

  /** @param {import('../common/program.js').HostStep} step @param {State} state @param {string} key @returns {MaybePromise<State>} */
  runHost(step, state, key) {
    const { parts } = this.program;
    if (parts?.has(step.id)) return /** @type {MaybePromise<State>} */ (parts.run(this, step, state, key));
    const python = /** @type {import('./environment.js').HostSteps} */ (this.python);
    const inputs = step.inputs.map((value) => this.hostValue(state, value));
    return andThen(python.host(this.program.python, step, inputs, state.env, this.stop), (results) => this.hostResults(step, state, key, results));
  }

  /** @param {import('../common/program.js').HostStep} step @param {State} state @param {string} key @param {HostArray[]} results @returns {State} */
  hostResults(step, state, key, results) {
    const dims = results.map((result) => result.dims);
    const after = this.plan.advance(state, `${key}:${JSON.stringify(dims)}`, (next) => {
      this.plan.bind(next, step.binds, dims);
      this.plan.take(next, buffersOf(step.outputs));
    });
    step.outputs.forEach(({ buffer, dtype }, i) => {
      if (this.header.buffers[buffer].host) this.hosts.set(buffer, results[i].data);
      else this.write(after, step.outputs[i], { type: dtype, dims: dims[i], data: fromNumbers(results[i].data, dtype) });
    });
    return this.plan.advance(after, `${key}:free`, (next) => next.drop(step.free));
  }

  /** A value for Python. @param {State} state @param {Value} value @returns {HostArray | null} */
  hostValue(state, value) {
    if (!value || 'items' in value) return null;
    const host = this.hosts.get(value.buffer);
    return { dims: evaluateAll(value.dims, state.env), data: host ?? exactNumbers(this.bytes(state, value.buffer), value.dtype) };
  }

  // ── values ──

  /** The bytes of a buffer. @param {State} state @param {number} buffer */
  bytes(state, buffer) {
    return this.memory.view(this.plan.span(state, buffer), this.plan.size(state.env, buffer));
  }

  /** @param {State} state @param {TensorValue} value @returns {number[]} */
  readNumbers(state, { buffer, dtype }) {
    return numbers(this.bytes(state, buffer), dtype);
  }

  // ── reports ──

  /** Bytes of all linear memories. */
  arenaBytes() {
    return this.memory.bytes.length + this.memory.apart;
  }

  /** Whether runs may have taken memory that a new executor would not take. */
  get grown() {
    return this.gpu !== null || this.arenaBytes() > this.begun;
  }

  memoryReport() {
    const { memory, plan } = this;
    const { arena: near, gpu: far } = plan.root.place;
    const [linear, gpu] = [plan.linearFigures, plan.gpuFigures];
    const weights = [...plan.constants.values()].reduce((sum, { size }) => sum + size, 0);
    const peak = linear.peak - near.weights + gpu.peak - far.weights;
    const requested = linear.requested + gpu.requested;
    const used = linear.top - near.base + gpu.top - far.base - near.weights - far.weights; // bytes that runs reach over
    const [reuse, fragmentation] = [peak ? requested / peak : 0, used > 0 ? Math.max(0, 1 - peak / used) : 0];
    const onGpu = { gpu: this.gpu?.memory.size ?? 0, tensors: this.gpu?.gpu.tensors.size ?? 0 };
    return { weights, peak, requested, reuse, fragmentation, arena: memory.bytes.length + memory.apart, ...onGpu };
  }

  release() {
    this.team?.release();
    this.plan.clear();
    this.gpu?.release();
    this.memory.giveBack();
  }
}
