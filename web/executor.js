// Runs a Program in the browser, without Python but for host steps. Mirrors pyruntime/executor.py.

import { bindDims, checkDims } from './bind.js';
import { runIf, runLoop } from './control.js';
import { evaluate, evaluateAll, symbolsOf } from './dims.js';
import { explain } from './explain.js';
import { fromNumbers, load, numbers, store } from './elements.js';
import { ExecutionError, InvalidInput } from './errors.js';
import { loadProgram, placeConstants, settle } from './loader.js';
import { Arena } from './memory.js';
import { State } from './state.js';

/** @typedef {import('./dims.js').Env} Env */
/** @typedef {import('./memory.js').Span} Span */
/** @typedef {import('./program.js').Call} Call */
/** @typedef {import('./program.js').TensorValue} TensorValue */
/** @typedef {import('./program.js').Value} Value */
/** @typedef {import('./protocol.js').WireTensor} WireTensor */
/** @typedef {import('./state.js').Transition} Transition */
/** @typedef {{ dims: number[], data: (string | number)[] }} HostArray a value outside linear memory */

const MEMO = 20_000; // transitions kept before they are forgotten

export class Executor {
  /**
   * @param {import('./program.js').ProgramData} program
   * @param {import('./python.js').Python} python
   * @param {import('./memory.js').Memory} memory
   * @param {Record<string, (table: number, tid: number, threads: number) => void>} code
   */
  constructor(program, python, memory, code) {
    this.program = program;
    this.header = program.header;
    this.python = python;
    this.memory = memory;
    this.code = code;
    /** Constants. @type {Map<number, Span>} */
    this.fixed = new Map();
    /** Strings, of constants and of the run in progress. @type {Map<number, HostArray>} */
    this.hostConstants = new Map();
    /** @type {Map<number, HostArray>} */
    this.hosts = new Map();
    this.root = new State(new Arena(), new Map(), new Map());
    this.tables = { base: 0, size: 0, top: 0, generation: 0 };
    /** @type {Map<string, State>} */
    this.interned = new Map();
    this.transitions = 0;
    this.peak = 0;
    this.requested = 0;
    this.guards = this.header.guards.map(([dim, message]) => ({ dim, message, symbols: symbolsOf(dim) }));
  }

  /**
   * @param {import('./program.js').ProgramData} program
   * @param {import('./python.js').Read} read
   * @param {import('./python.js').Python} python
   * @param {{ threads: number, thread: string, shared: boolean }} host
   * @returns {Promise<Executor>}
   */
  static async create(program, read, python, host) {
    const { memory, code } = await loadProgram(program, host);
    const executor = new Executor(program, python, memory, code);
    placeConstants(executor, read);
    executor.root = settle(executor, executor.runBlock(0, executor.root));
    return executor;
  }

  // ── a run ──

  /**
   * @param {Record<string, WireTensor>} feeds
   * @param {Record<string, WireTensor | null>} fetches
   * @returns {Record<string, WireTensor>}
   */
  run(feeds, fetches) {
    if (this.transitions > MEMO) this.forget();
    this.hosts = new Map(this.hostConstants);
    let state = this.bindInputs(this.root, feeds);
    for (const { name, buffer, dtype } of this.header.inputs) this.write(state, buffer, dtype, feeds[name]);
    state = this.runBlock(1, state);
    this.peak = Math.max(this.peak, state.peak);
    this.requested = Math.max(this.requested, state.requested);
    const wanted = this.header.outputs.filter(({ name }) => name in fetches);
    return Object.fromEntries(wanted.map(({ name, value }) => [name, this.output(state, name, value, fetches[name])]));
  }

  /** Input dims become the values of symbols, inputs get memory. @param {State} state @param {Record<string, WireTensor>} feeds */
  bindInputs(state, feeds) {
    const key = this.header.inputs.map(({ name }) => feeds[name]?.dims.join()).join(';');
    return this.advance(state, key, (next) => {
      for (const { name, dims } of this.header.inputs) bindDims(name, dims, feeds[name]?.dims, next.env);
      for (const { name, dims } of this.header.inputs) checkDims(name, dims, feeds[name].dims, next.env);
      this.checkGuards(next.env, new Set(next.env.keys()));
      for (const { buffer } of this.header.inputs) this.take(next, buffer);
    });
  }

  /** @param {State} state @param {number} buffer @param {string} dtype @param {WireTensor} feed */
  write(state, buffer, dtype, { dims, data }) {
    if (Array.isArray(data)) this.hosts.set(buffer, { dims: [...dims], data });
    else store(data, dtype, this.bytes(state, buffer));
  }

  /** @param {State} state @param {string} name @param {Value} value @param {WireTensor | null} target @returns {WireTensor} */
  output(state, name, value, target) {
    if (!value || 'items' in value) {
      throw new ExecutionError(`the output "${name}" is no tensor`, { hint: "JavaScript's API has no sequences and optionals" });
    }
    const host = this.hosts.get(value.buffer);
    const dims = evaluateAll(value.dims, state.env);
    if (host) return { type: value.dtype, dims, data: /** @type {string[]} */ (host.data) };
    return load(this.bytes(state, value.buffer), value.dtype, dims, target);
  }

  // ── steps ──

  /** @param {number} number @param {State} state @returns {State} */
  runBlock(number, state) {
    const { steps } = this.header.blocks[number];
    for (let i = 0; i < steps.length; i++) {
      const step = steps[i];
      const key = `${number}.${i}`;
      if (step.op === 'wasm') state = this.runWasm(step, state, key);
      else if (step.op === 'read') state = this.runRead(step, state, key);
      else if (step.op === 'host') state = this.runHost(step, state, key);
      else if (step.op === 'if') state = runIf(this, step, state, key);
      else state = runLoop(this, step, state, key);
    }
    return state;
  }

  /** @param {import('./program.js').WasmStep} step @param {State} state @param {string} key @returns {State} */
  runWasm(step, state, key) {
    let found = state.next.get(key);
    if (!found || found.generation !== this.tables.generation) found = this.planCalls(step.calls, state, key);
    try {
      this.code[step.fn](found.table, 0, 1);
    } catch (error) {
      const reason = /** @type {Error} */ (error).message;
      throw new ExecutionError(`${step.fn} stopped: ${reason}`, { node: step.calls.length === 1 ? step.calls[0].node : '', cause: error });
    }
    return found.state;
  }

  /** @param {import('./program.js').ReadStep} step @param {State} state @param {string} key @returns {State} */
  runRead(step, state, key) {
    const values = this.readNumbers(state, step.value);
    return this.advance(state, `${key}:${values.join()}`, (next) => {
      step.symbols.forEach((symbol, i) => next.env.set(symbol, values[i]));
      this.checkGuards(next.env, new Set(step.symbols));
      this.drop(next, step.free);
    });
  }

  /** @param {import('./program.js').HostStep} step @param {State} state @param {string} key @returns {State} */
  runHost(step, state, key) {
    const results = this.python.host(this.program.python, step, step.inputs.map((value) => this.hostValue(state, value)));
    const dims = results.map((result) => result.dims);
    const after = this.advance(state, `${key}:${JSON.stringify(dims)}`, (next) => {
      this.bind(next, step.binds, dims);
      for (const { buffer } of step.outputs) this.take(next, buffer);
    });
    step.outputs.forEach(({ buffer, dtype }, i) => {
      if (this.header.buffers[buffer].host) this.hosts.set(buffer, results[i]);
      else this.write(after, buffer, dtype, { type: dtype, dims: dims[i], data: fromNumbers(/** @type {number[]} */ (results[i].data), dtype) });
    });
    return this.advance(after, `${key}:free`, (next) => this.drop(next, step.free));
  }

  /** A value as Python sees it. @param {State} state @param {Value} value @returns {HostArray | null} */
  hostValue(state, value) {
    if (!value || 'items' in value) return null;
    const host = this.hosts.get(value.buffer);
    return { dims: evaluateAll(value.dims, state.env), data: host ? host.data : this.readNumbers(state, value) };
  }

  // ── plans ──

  /**
   * The state after a step, planned by `change` on a copy unless it was before.
   * @param {State} state @param {string} key @param {(next: State) => void} change
   * @returns {State}
   */
  advance(state, key, change) {
    const found = state.next.get(key);
    if (found) return found.state;
    const next = state.copy();
    change(next);
    this.memory.ensure(next.arena.end + 64);
    state.next.set(key, { state: next, table: 0, generation: 0 });
    this.transitions++;
    return next;
  }

  /**
   * Gives the buffers of calls their addresses and writes the argument blocks.
   * @param {Call[]} calls @param {State} state @param {string} key
   * @returns {Transition}
   */
  planCalls(calls, state, key) {
    const next = state.copy();
    /** @type {number[]} */
    const words = [];
    for (const call of calls) {
      const released = new Set(call.free);
      const taken = this.allocate(call, next, released);
      for (const buffer of call.buffers) words.push(this.span(next, buffer).address);
      for (const param of call.params) words.push(evaluate(param, next.env));
      words.push(evaluate(call.work, next.env));
      for (const buffer of taken) next.spans.delete(buffer);
      this.drop(next, released);
    }
    this.memory.ensure(next.arena.end + 64);
    const table = this.writeTable(words);
    const transition = { state: next, table, generation: this.tables.generation };
    state.next.set(key, transition);
    this.transitions++;
    return transition;
  }

  /**
   * Memory for what a call makes. An output may take over that of an input which ends here; such inputs are told.
   * @param {Call} call @param {State} next @param {Set<number>} released @returns {number[]}
   */
  allocate(call, next, released) {
    const taken = [];
    for (const buffer of call.alloc ?? []) {
      const size = this.size(next, buffer);
      const pair = call.inplace?.find(([output, input]) => output === buffer && released.has(input) && this.size(next, input) === size);
      const span = pair && next.spans.get(pair[1]);
      if (!span) {
        next.take(buffer, size);
        continue;
      }
      next.spans.set(buffer, span);
      next.requested += span.size;
      released.delete(pair[1]);
      taken.push(pair[1]);
    }
    return taken;
  }

  /** @param {number[]} words @returns {number} the address of the table */
  writeTable(words) {
    const size = Math.ceil((4 * words.length) / 64) * 64;
    if (this.tables.top + size > this.tables.size) this.forget();
    const address = this.tables.base + this.tables.top;
    this.tables.top += size;
    new Int32Array(this.memory.memory.buffer, address, words.length).set(words);
    return address;
  }

  /** Drops all plans; those of a run in progress are made again as it meets them. */
  forget() {
    this.tables.top = 0;
    this.tables.generation++;
    this.root.next.clear();
    this.interned.clear();
    this.transitions = 0;
  }

  /** The one state of this content. @param {State} state @returns {State} */
  intern(state) {
    const content = state.content();
    const known = this.interned.get(content);
    if (!known) this.interned.set(content, state);
    return known ?? state;
  }

  // ── values ──

  /** @param {State} state @param {number} buffer @returns {number} bytes */
  size(state, buffer) {
    return evaluate(this.header.buffers[buffer].size, state.env);
  }

  /** @param {State} state @param {number} buffer */
  take(state, buffer) {
    if (!this.header.buffers[buffer].host) state.take(buffer, this.size(state, buffer));
  }

  /** @param {State} state @param {Iterable<number>} [buffers] */
  drop(state, buffers = []) {
    for (const buffer of buffers) state.drop(buffer);
  }

  /** @param {State} state @param {number} buffer @returns {Span} */
  span(state, buffer) {
    const span = state.spans.get(buffer) ?? this.fixed.get(buffer);
    if (!span) throw new Error(`buffer ${buffer} has no memory`);
    return span;
  }

  /** @param {State} state @param {number} buffer @returns {Uint8Array} */
  bytes(state, buffer) {
    return this.memory.view(this.span(state, buffer), this.size(state, buffer));
  }

  /** @param {State} state @param {TensorValue} value @returns {number[]} */
  readNumbers(state, { buffer, dtype }) {
    return numbers(this.bytes(state, buffer), dtype);
  }

  /** Symbols take the dims that values turned out to have. @param {State} state @param {import('./program.js').Binds | undefined} binds @param {number[][]} dims */
  bind(state, binds = [], dims) {
    for (const [value, axis, symbol] of binds) state.env.set(symbol, dims[value]?.[axis] ?? 0);
    this.checkGuards(state.env, new Set(binds.map(([, , symbol]) => symbol)));
  }

  /** Those that all symbols are known of, and one is new. @param {Env} env @param {Set<string>} fresh */
  checkGuards(env, fresh) {
    for (const { dim, message, symbols } of this.guards) {
      const names = [...symbols];
      if (!names.every((name) => env.has(name)) || (names.length && !names.some((name) => fresh.has(name)))) continue;
      if (!evaluate(dim, env)) throw new InvalidInput(message);
    }
  }

  // ── reports ──

  /** @returns {import('./program.js').Signature[]} */
  get inputs() {
    return this.header.inputs.map(({ name, dtype, dims }) => ({ name, dtype, shape: dims.map(named) }));
  }

  /** @returns {import('./program.js').Signature[]} */
  get outputs() {
    return this.header.outputs.map(({ name, value }) => (!value || 'items' in value
      ? { name, dtype: null, shape: null } : { name, dtype: value.dtype, shape: value.dims.map(named) }));
  }

  /** Bytes of linear memory. */
  arenaBytes() {
    return this.memory.bytes.length;
  }

  memoryReport() {
    const weights = [...this.fixed.values()].reduce((sum, { size }) => sum + size, 0);
    return { weights, peak: this.peak, requested: this.requested, arena: this.arenaBytes() };
  }

  explain() {
    return explain(this.header);
  }

  release() {
    this.program.python?.destroy();
    this.root.next.clear();
    this.interned.clear();
  }
}

/** @param {import('./dims.js').Dim} dim */
const named = (dim) => (typeof dim === 'object' ? null : dim);
