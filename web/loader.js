// From a Program's bytes to code and constants in memory.

import { unpackBits } from './elements.js';
import { Memory } from './memory.js';
import { State } from './state.js';

/** @typedef {import('./executor.js').Executor} Executor */
/** @typedef {import('./program.js').Constant} Constant */
/** @typedef {import('./python.js').Read} Read */

/**
 * @param {import('./program.js').ProgramData} program
 * @param {{ shared: boolean }} host
 */
export async function loadProgram({ header, blob }, { shared }) {
  const memory = new Memory(shared);
  const place = header.modules.wasm;
  if (!place) return { memory, code: {} };
  const bytes = blob.slice(place[0], place[0] + place[1]);
  const { instance } = await WebAssembly.instantiate(bytes, { env: { memory: memory.memory } });
  return { memory, code: /** @type {any} */ (instance.exports) };
}

/** Tables first, then constants, in the root state. @param {Executor} executor @param {Read} read */
export function placeConstants(executor, read) {
  const { root, header, memory } = executor;
  const size = tableBytes(header);
  const span = root.arena.alloc(size);
  executor.tables = { base: span.address, size, top: 0, generation: 0 };
  for (const constant of header.constants) {
    if (constant.strings) executor.hostConstants.set(constant.buffer, { dims: [constant.strings.length], data: constant.strings });
    else root.take(constant.buffer, executor.size(root, constant.buffer));
  }
  memory.ensure(root.arena.end + 64);
  executor.hosts = new Map(executor.hostConstants);
  for (const constant of header.constants) if (!constant.strings) fill(executor, constant, read);
}

/** @param {Executor} executor @param {Constant} constant @param {Read} read */
function fill(executor, constant, read) {
  const target = executor.bytes(executor.root, constant.buffer);
  if (constant.blob) {
    const [offset, size] = constant.blob;
    target.set(executor.program.blob.subarray(offset, offset + size));
    return;
  }
  const bytes = read(constant.offset ?? 0, constant.size ?? 0, constant.source ?? '');
  if (constant.unpack) unpackBits(bytes, constant.unpack, Boolean(constant.signed), target);
  else target.set(bytes);
}

/** After `init`: what is left is constant, runs start from here. @param {Executor} executor @param {State} state @returns {State} */
export function settle(executor, state) {
  executor.fixed = state.spans;
  executor.hostConstants = executor.hosts;
  executor.interned.clear();
  executor.tables.top = 0;
  executor.tables.generation++;
  return new State(state.arena.copy(), new Map(), new Map());
}

/** Room for the argument blocks of some eight different shapes. @param {import('./program.js').Header} header */
function tableBytes(header) {
  const steps = header.blocks.flatMap((block) => block.steps.filter((step) => step.op === 'wasm'));
  const words = steps.map(({ calls }) => calls.reduce((sum, call) => sum + call.buffers.length + call.params.length + 1, 16));
  return Math.max(65536, 8 * 4 * words.reduce((sum, count) => sum + count, 0));
}
