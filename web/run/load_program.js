// From a Program's bytes to code and constants in memory.

import { unpackBits } from '../common/elements.js';
import { mark } from '../common/marks.js';
import { Memory } from './arena.js';
import { State } from './plan_state.js';

/** @typedef {import('./executor.js').Executor} Executor */
/** @typedef {import('../common/program.js').Constant} Constant */
/** @typedef {Exclude<Constant, import('../common/program.js').StringConstant>} Numbers */
/** @typedef {import('./environment.js').ReadFile} Read */

/**
 * Code for both providers, compiled side by side.
 * @param {import('../common/program.js').ProgramData} program
 * @param {import('./environment.js').Host} host
 */
export async function loadProgram(program, host) {
  const { gpu } = host;
  const shaders = gpu && program.header.modules.webgpu ? gpu.load(program) : null; // the page, which has no GPU, goes without the code for one
  const [code, runner] = await Promise.allSettled([loadWasm(program, host), shaders]);
  if (code.status === 'fulfilled' && runner.status === 'fulfilled') return { ...code.value, gpu: runner.value };
  if (code.status === 'fulfilled') releaseWasm(code.value); // what did load has nobody to release it
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

/** The same for who cannot wait: one thread, no GPU. @param {import('../common/program.js').ProgramData} program @param {number} memoryLimit */
export function loadNow({ header, blob }, memoryLimit) {
  const memory = Memory.take(false, memoryLimit);
  try {
    const place = header.modules.wasm;
    if (!place) return { memory, code: {} };
    const module = new WebAssembly.Module(blob.slice(place[0], place[0] + place[1]));
    const { exports } = new WebAssembly.Instance(module, { env: { memory: memory.memory } });
    return { memory, code: /** @type {import('../threads/mailbox.js').Code} */ (/** @type {unknown} */ (exports)) };
  } catch (error) {
    memory.giveBack();
    throw error;
  }
}

/** @param {WebAssembly.Module} module @param {Memory} memory @param {number} threads @param {import('../threads/pool.js').ThreadPool | null} pool */
async function start(module, memory, threads, pool) {
  const instance = await WebAssembly.instantiate(module, { env: { memory: memory.memory } });
  const code = /** @type {import('../threads/mailbox.js').Code} */ (/** @type {unknown} */ (instance.exports));
  const team = threads > 1 && pool && 'poison' in code ? await pool.team(threads, module, memory.memory, code) : null;
  return { memory, code, team };
}

/** Tables first, then constants, in the root state. @param {Executor} executor @param {Read} read */
export function loadConstants(executor, read) {
  const { header, plan } = executor;
  const { root } = plan;
  const { address: base, size } = root.arena.alloc(tableBytes(header));
  plan.tables = { base, size, top: 0, generation: 0 };
  const { kept, spent } = leftByInit(header);
  for (const buffer of kept) plan.take(root, buffer); // what stays lies first, so that no holes remain
  plan.preallocated = new Set(kept);
  const late = (/** @type {Constant} */ { buffer }) => Number(spent.has(buffer));
  for (const constant of [...header.constants].sort((a, b) => late(a) - late(b))) {
    if ('strings' in constant) executor.hostConstants.set(constant.buffer, constant.strings);
    else plan.take(root, constant.buffer);
  }
  plan.ensure(root);
  executor.hosts = new Map(executor.hostConstants);
  for (const constant of header.constants) if (!('strings' in constant)) fill(executor, constant, read);
  mark('constants placed');
}

/**
 * The buffers that the init block's calls make and leave behind, and those it frees.
 * @param {import('../common/program.js').Header} header
 */
function leftByInit({ blocks: [{ steps }] }) {
  const calls = steps.flatMap((step) => ('calls' in step ? step.calls : []));
  const spent = new Set([...steps, ...calls].flatMap((step) => ('free' in step ? step.free : [])));
  return { kept: calls.flatMap(({ alloc }) => alloc).filter((buffer) => !spent.has(buffer)), spent };
}

/** @param {Executor} executor @param {Numbers} constant @param {Read} read */
function fill({ plan, program, gpu }, constant, read) {
  const bytes = 'blob' in constant ? program.blob.subarray(constant.blob[0], constant.blob[0] + constant.blob[1])
    : read(constant.offset, constant.size, constant.source);
  if (plan.isOnGpu(constant.buffer)) {
    const raw = constant.unpack ? unpacked(bytes, constant, plan.size(plan.root, constant.buffer)) : bytes;
    gpu?.memory.write(plan.span(plan.root, constant.buffer).address, raw, constant.dtype);
    return;
  }
  const target = plan.bytes(plan.root, constant.buffer);
  if (constant.unpack) unpackBits(bytes, constant.unpack, constant.signed, target);
  else target.set(bytes);
}

/** @param {Uint8Array} bytes @param {Numbers} constant @param {number} size @returns {Uint8Array} */
function unpacked(bytes, { unpack, signed }, size) {
  const into = new Uint8Array(size);
  unpackBits(bytes, unpack, signed, into);
  return into;
}

/** After `init`: what is left is constant, runs start from here. @param {Executor} executor @param {State} state */
export function finishInit(executor, state) {
  const { plan } = executor;
  executor.hostConstants = executor.hosts;
  plan.constants = state.spans;
  plan.preallocated.clear();
  plan.clear();
  plan.root = new State(state.arena.copy(), state.gpu.copy(), new Map(), new Map());
}

/** Room for the argument blocks of some eight different shapes. @param {import('../common/program.js').Header} header */
function tableBytes(header) {
  const steps = header.blocks.flatMap((block) => block.steps.filter((step) => step.op === 'wasm'));
  const words = steps.map(({ calls }) => calls.reduce((sum, call) => sum + call.buffers.length + call.params.length + 1, 16));
  return Math.max(65536, 8 * 4 * words.reduce((sum, count) => sum + count, 0));
}
