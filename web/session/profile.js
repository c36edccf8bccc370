// Times the kernel calls of a run one by one, as InferenceSession.profile in Python does.

import { evaluate } from '../common/dims.js';
import { InvalidInput } from '../common/errors.js';

/** @import { Call } from '../common/program.js' */
/** @import { KernelTiming } from '../common/protocol.js' */
/** @import { Executor } from '../run/executor.js' */
/** @import { Timed } from '../run/types.js' */

/** @typedef {(table: number, begin: number, end: number, tid: number) => void} Kernel */

/**
 * Calls each kernel separately: on the CPU from this thread, not from generated code; on the GPU in a pass of its own.
 * @template T @param {Executor} executor @param {() => T} run @param {KernelTiming[]} kernels gets the times, in the order of the calls
 * @param {number} [repeat] how often each kernel on the GPU runs; its time is the mean
 * @returns {Promise<Awaited<T>>} result of the run
 */
export async function profile(executor, run, kernels, repeat = 1) {
  if (!Number.isInteger(repeat) || repeat < 1) throw new InvalidInput(`repeat cannot be ${repeat}`, { hint: 'a whole number from 1 on' });
  const { code, team, gpu } = executor;
  /** @type {Timed[]} */
  const found = [];
  Object.assign(executor, { code: timed(executor, found), team: null });
  gpu?.beginTiming(found, repeat);
  try {
    const result = await run();
    await gpu?.timer?.read();
    for (const { call, ...times } of found) {
      kernels.push({ node: call.node, kernel: call.kernel, ...times, bytes: bytesOf(executor, call) });
    }
    return result;
  } finally {
    Object.assign(executor, { code, team });
    gpu?.endTiming();
  }
}

/**
 * The code, with the functions of steps replaced by ones that time each kernel.
 * @param {Executor} executor @param {Timed[]} found
 */
function timed({ header, code, memory }, found) {
  const kernels = /** @type {Record<string, Kernel>} */ (/** @type {unknown} */ (code));
  const steps = header.blocks.flatMap((block) => block.steps);
  const repeats = steps.flatMap((step) => (step.op === 'loop' && step.repeat ? [[step.repeat.fn, null]] : []));
  const replaced = steps.flatMap((step) => (step.op !== 'wasm' ? [] : [[step.fn, (/** @type {number} */ table) => {
    for (const call of step.calls) {
      const words = call.buffers.length + call.params.length;
      const work = new Int32Array(memory.memory.buffer, table, words + 1)[words];
      const start = performance.now();
      kernels[call.kernel](table, 0, work, 0);
      found.push({ call, place: 'wasm', milliseconds: performance.now() - start });
      table += 4 * (words + 1);
    }
  }]]));
  return { ...code, ...Object.fromEntries([...replaced, ...repeats]) };
}

/** Bytes that a call reads and writes; 0 if a size is no longer known. @param {Executor} executor @param {Call} call */
function bytesOf({ header, env }, call) {
  try {
    return [...new Set(call.buffers)].reduce((sum, buffer) => sum + evaluate(header.buffers[buffer].size, env), 0);
  } catch {
    return 0;
  }
}
