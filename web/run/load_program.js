// Loads a Program: compiles its code, and loads its constants into memory. Mirrors pyruntime/native/execution/load_program.py.

import { unpackBits } from '../common/elements.js';
import { mark } from '../common/marks.js';
import { Memory } from './memory.js';
import { State } from '../runtime/states.js';

/** @typedef {import('./types.js').Executor} Executor */
/** @typedef {import('../common/program.js').Constant} Constant */
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
  const shaders = gpu && program.header.modules.webgpu ? gpu.load(program) : null; // a page without a GPU does not load the code for it
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

/** @param {import('../common/program.js').ProgramData} program @param {import('./environment.js').Host} host */
async function loadWasm(program, { shared, threads = 1, pool = null, memoryLimit }) {
  const { header, blob } = program;
  const memory = Memory.take(shared, memoryLimit);
  try {
    memory.add(header.memories ?? [], shared);
    const place = header.modules.wasm;
    if (!place) return { memory, code: {}, team: null };
    program.module ??= await WebAssembly.compile(blob.slice(place[0], place[0] + place[1]));
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
 * Runs the init block. Buffers that outlive it are placed first, so that no holes remain. A constant that only a step of init reads
 * is loaded before that step and freed after it.
 * @param {Executor} executor @param {Read} read
 * @returns {MaybePromise<void>}
 */
export function runInit(executor, read) {
  const { header, plan } = executor;
  const { kept, spent } = leftByInit(header);
  for (const buffer of kept) plan.place(plan.root, buffer);
  plan.preallocated = new Set(kept);
  const pending = new Set(header.constants.filter(({ buffer }) => spent.has(buffer)));
  loadConstants(executor, read, plan.root, header.constants.filter((constant) => !pending.has(constant)));
  mark('constants placed');
  const { steps } = header.blocks[0];
  /** @param {number} n @param {State} state @returns {MaybePromise<void>} */
  const from = (n, state) => {
    for (; n < steps.length; n++) {
      const next = new State(state.place.copy(), state.env);
      const used = readBy(steps[n], pending);
      loadConstants(executor, read, next, used);
      for (const constant of used) pending.delete(constant);
      const after = executor.runStep(steps[n], next, `0.${n}`);
      if (after instanceof Promise) return after.then((last) => from(n + 1, last));
      state = after;
    }
    finishInit(executor, state);
  };
  return from(0, plan.root);
}

/** The pending constants that a step may read. @param {import('../common/program.js').Step} step @param {Set<Constant>} pending */
function readBy(step, pending) {
  if (!('calls' in step)) return [...pending];
  const read = new Set(step.calls.flatMap(({ buffers }) => buffers));
  return [...pending].filter(({ buffer }) => read.has(buffer));
}

/** @param {Executor} executor @param {Read} read @param {State} state in which the constants get memory @param {Constant[]} constants */
function loadConstants(executor, read, state, constants) {
  const { plan } = executor;
  for (const constant of constants) {
    if ('strings' in constant) executor.hostConstants.set(constant.buffer, constant.strings);
    else plan.place(state, constant.buffer);
  }
  plan.ensure(state.place);
  executor.hosts = new Map([...executor.hosts, ...executor.hostConstants]);
  for (const constant of constants) if (!('strings' in constant)) fill(executor, constant, read, state);
}

/**
 * kept: buffers that calls of the init block allocate and that outlive it; spent: buffers that it frees.
 * @param {import('../common/program.js').Header} header
 */
function leftByInit({ blocks: [{ steps }] }) {
  const calls = steps.flatMap((step) => ('calls' in step ? step.calls : []));
  const spent = new Set([...steps, ...calls].flatMap((step) => ('free' in step ? step.free : [])));
  return { kept: calls.flatMap(({ alloc }) => alloc).filter((buffer) => !spent.has(buffer)), spent };
}

/** @param {Executor} executor @param {Numbers} constant @param {Read} read @param {State} state */
function fill(executor, constant, read, state) {
  const { plan, program, gpu } = executor;
  const bytes = () => ('blob' in constant ? program.blob.subarray(constant.blob[0], constant.blob[0] + constant.blob[1])
    : read(constant.offset, constant.size, constant.source));
  if (plan.isOnGpu(constant.buffer)) {
    const raw = constant.unpack ? unpacked(bytes(), constant, plan.size(state.env, constant.buffer)) : bytes();
    gpu?.memory.write(plan.span(state, constant.buffer).address, raw, constant.dtype);
    return;
  }
  const target = executor.bytes(state, constant.buffer);
  if (constant.unpack) unpackBits(bytes(), constant.unpack, constant.signed, target);
  else if ('source' in constant && read.into) read.into(target.subarray(0, constant.size), constant.offset, constant.source);
  else target.set(bytes());
}

/** @param {Uint8Array} bytes @param {Numbers} constant @param {number} size @returns {Uint8Array} */
function unpacked(bytes, { unpack, signed }, size) {
  const into = new Uint8Array(size);
  unpackBits(bytes, unpack, signed, into);
  return into;
}

/** Ends `init`: the remaining buffers are constants, and runs start from this state. @param {Executor} executor @param {State} state */
function finishInit(executor, state) {
  executor.hostConstants = executor.hosts;
  executor.plan.makePermanent(state);
}
