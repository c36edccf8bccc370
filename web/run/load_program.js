// Loads a Program: compiles its code, and loads its constants into memory.
// Twin of pyruntime/native/execution/load_program.py.

import { unpackBits, viewOf } from '../common/elements.js';
import { mark } from '../common/marks.js';
import { andThen } from '../common/maybe_promise.js';
import { Memory } from './memory.js';
import { startUp } from '../runtime/start_up.js';
import { State } from '../runtime/states.js';

/** @import { Constant } from '../common/program.js' */
/** @import { Executor } from './types.js' */
/** @typedef {Exclude<Constant, import('../common/program.js').StringConstant>} Numbers */
/** @typedef {import('./environment.js').ReadFile} Read */
/** @template T @typedef {import('../common/maybe_promise.js').MaybePromise<T>} MaybePromise */

/**
 * Compiles the code for both providers concurrently.
 * @param {import('../common/program.js').ProgramData} program
 * @param {import('./environment.js').Host} host
 */
export async function loadProgram(program, host) {
  const { gpu } = host;
  const shaders = gpu && program.header.modules.webgpu ? gpu.load(program, host.gpuTimeout) : null; // a page without a GPU does not load the code for it
  const [code, runner] = await Promise.allSettled([loadWasm(program, host), shaders]);
  if (code.status === 'fulfilled' && runner.status === 'fulfilled') return { ...code.value, gpu: runner.value };
  if (code.status === 'fulfilled') releaseWasm(code.value); // nothing else would release the part that did load
  if (runner.status === 'fulfilled') runner.value?.release();
  throw [code, runner].find((one) => one.status === 'rejected')?.reason;
}

/** @param {{ memory: Memory, team: import('../threads/pool.js').ThreadTeam | null }} loaded */
function releaseWasm({ memory, team }) {
  team?.release();
  memory.giveBack();
}

/** Compiles a Program's code, once. @param {import('../common/program.js').ProgramData} program @returns {Promise<WebAssembly.Module>} */
export function compileCode(program) {
  const { header: { modules: { wasm: [start, size] = [0, 0] } }, blob } = program;
  return program.compiling ??= WebAssembly.compile(blob.slice(start, start + size));
}

/** @param {import('../common/program.js').ProgramData} program @param {import('./environment.js').Host} host */
async function loadWasm(program, { shared, threads = 1, pool = null, memoryLimit }) {
  const { header } = program;
  const memory = Memory.take(shared, memoryLimit);
  try {
    memory.add(header.memories ?? [], shared);
    const place = header.modules.wasm;
    if (!place) return { memory, code: {}, team: null };
    program.module ??= await compileCode(program);
    mark('kernels compiled');
    return await start(program.module, memory, threads, pool);
  } catch (error) {
    memory.giveBack();
    throw error;
  }
}

/** A synchronous `loadProgram`: one thread, no GPU. @param {import('../common/program.js').ProgramData} program @param {number} memoryLimit */
export function loadNow({ header, blob }, memoryLimit) {
  const memory = Memory.take(false, memoryLimit);
  try {
    memory.add(header.memories ?? [], false);
    const place = header.modules.wasm;
    if (!place) return { memory, code: {} };
    const module = new WebAssembly.Module(blob.slice(place[0], place[0] + place[1]));
    const { exports } = new WebAssembly.Instance(module, { env: memory.imports });
    return { memory, code: /** @type {import('../threads/mailbox.js').Code} */ (/** @type {unknown} */ (exports)) };
  } catch (error) {
    memory.giveBack();
    throw error;
  }
}

/** @param {WebAssembly.Module} module @param {Memory} memory @param {number} threads @param {import('../threads/pool.js').ThreadPool | null} pool */
async function start(module, memory, threads, pool) {
  const instance = await WebAssembly.instantiate(module, { env: memory.imports });
  const code = /** @type {import('../threads/mailbox.js').Code} */ (/** @type {unknown} */ (instance.exports));
  const team = threads > 1 && pool && 'poison' in code ? await pool.team(threads, module, memory.imports, code) : null;
  return { memory, code, team };
}

/**
 * Loads the constants into memory, as far as their bytes have arrived, and runs the init block.
 * @param {Executor} executor @param {Read} read
 * @returns {MaybePromise<void>}
 */
export function runInit(executor, read) {
  const { header, plan } = executor;
  const { permanent, constants, reads, before } = startUp(header);
  for (const buffer of permanent) plan.place(plan.root, buffer);
  plan.preallocated = new Set(permanent);
  place(executor, plan.root, constants);
  const pending = new Set(constants.sort((a, b) => endOf(a) - endOf(b)));
  const { steps } = header.blocks[0];
  /** @param {number} n @param {State} state @returns {MaybePromise<void>} */
  const from = (n, state) => {
    for (; n < steps.length; n++) {
      for (const constant of pending) {
        if (arrival(constant, read)) break;
        load(executor, [constant], read, state, pending);
      }
      const next = new State(state.place.copy(), state.env);
      place(executor, next, before[n]);
      const loading = load(executor, [...reads[n], ...before[n]], read, next, pending);
      const after = andThen(loading, () => executor.runStep(steps[n], next, `0.${n}`));
      if (after instanceof Promise) return after.then((last) => from(n + 1, last));
      state = after;
    }
    return andThen(load(executor, [...pending], read, state, pending), () => {
      executor.hostConstants = executor.hosts;
      plan.makePermanent(state);
    });
  };
  return from(0, plan.root);
}

/** Gives constants memory. @param {Executor} executor @param {State} state @param {Constant[]} constants */
function place(executor, state, constants) {
  const { plan } = executor;
  for (const constant of constants) {
    if ('strings' in constant) executor.hostConstants.set(constant.buffer, constant.strings);
    else plan.place(state, constant.buffer);
  }
  plan.ensure(state.place);
  executor.hosts = new Map([...executor.hosts, ...executor.hostConstants]);
}

/**
 * Fills the memory of constants, one after the other, each when its bytes have arrived.
 * @param {Executor} executor @param {Constant[]} constants @param {Read} read @param {State} state
 * @param {Set<Constant>} pending which loses those that are filled
 * @returns {MaybePromise<void>}
 */
function load(executor, constants, read, state, pending) {
  for (const [n, constant] of constants.entries()) {
    const wait = arrival(constant, read);
    if (wait) return wait.then(() => load(executor, constants.slice(n), read, state, pending));
    if (!('strings' in constant)) fill(executor, constant, read, state);
    pending.delete(constant);
  }
  return undefined;
}

/** Where a constant ends in its file. @param {Constant} constant */
const endOf = (constant) => ('source' in constant ? constant.offset + constant.size : 0);

/** Resolves when the bytes of a constant have arrived; null if they are there. @param {Constant} constant @param {Read} read */
const arrival = (constant, read) => ('source' in constant ? read.until?.(endOf(constant), constant.source) ?? null : null);

/** @param {Executor} executor @param {Numbers} constant @param {Read} read @param {State} state */
function fill(executor, constant, read, state) {
  const { plan, program, gpu } = executor;
  if ('zeros' in constant) return fillZeros(executor, constant, state);
  const bytes = () => ('blob' in constant ? program.blob.subarray(constant.blob[0], constant.blob[0] + constant.blob[1])
    : read(constant.offset, constant.size, constant.source));
  if (plan.isOnGpu(constant.buffer)) {
    const raw = constant.unpack ? unpacked(bytes(), constant, plan.size(state.env, constant.buffer)) : bytes();
    gpu?.memory.write(plan.span(state, constant.buffer).address, constant.flush ? flushSubnormals(raw.slice(), constant.dtype) : raw, constant.dtype);
    return;
  }
  const target = executor.bytes(state, constant.buffer);
  if (constant.unpack) unpackBits(bytes(), constant.unpack, constant.signed, target);
  else if ('source' in constant && read.into) read.into(target.subarray(0, constant.size), constant.offset, constant.source);
  else target.set(bytes());
  if (constant.flush) flushSubnormals(target, constant.dtype);
}

/** @param {Executor} executor @param {import('../common/program.js').ZeroConstant} constant @param {State} state */
function fillZeros(executor, { buffer }, state) {
  const { plan, gpu } = executor;
  if (plan.isOnGpu(buffer)) gpu?.memory.write(plan.span(state, buffer).address, new Uint8Array(plan.size(state.env, buffer)), 'int32');
  else executor.bytes(state, buffer).fill(0);
}

/** @param {Uint8Array} bytes @param {{ unpack: number, signed: boolean }} constant @param {number} size @returns {Uint8Array} */
function unpacked(bytes, { unpack, signed }, size) {
  const into = new Uint8Array(size);
  unpackBits(bytes, unpack, signed, into);
  return into;
}

/**
 * Replaces subnormal elements, of float32 or float64, by zeros of their signs, in place.
 * @param {Uint8Array} bytes @param {string} dtype @returns {Uint8Array} the same
 */
export function flushSubnormals(bytes, dtype) {
  const numbers = /** @type {Float32Array | Float64Array} */ (viewOf(bytes, dtype));
  const least = dtype === 'float64' ? 2 ** -1022 : 2 ** -126;
  for (let n = 0; n < numbers.length; n++) if (Math.abs(numbers[n]) < least) numbers[n] *= 0;
  return bytes;
}
