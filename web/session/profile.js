// A run whose kernel calls are timed one by one. The mirror of InferenceSession.profile in Python.

import { evaluate } from '../run/dims.js';

/** @typedef {import('../run/executor.js').Executor} Executor */
/** @typedef {import('../common/program.js').Call} Call */
/** @typedef {import('../common/protocol.js').KernelTiming} KernelTiming */

/** @typedef {import('../gpu/timer.js').Timed} Timed */

/**
 * Runs with each kernel called on its own: on this thread in place of the generated code that calls them all, on the GPU
 * in a pass of its own.
 * @template T @param {Executor} executor @param {() => T} run @param {KernelTiming[]} kernels gets them, in the order they ran
 * @returns {Promise<Awaited<T>>} what the run gives
 */
export async function profile(executor, run, kernels) {
  const { code, team, gpu } = executor;
  /** @type {Timed[]} */
  const found = [];
  Object.assign(executor, { code: timed(executor, found), team: null });
  gpu?.beginTiming(found);
  try {
    const given = await run();
    await gpu?.timer?.read();
    kernels.push(...found.map(({ call, ...times }) => ({ node: call.node, kernel: call.kernel, ...times, bytes: bytesOf(executor, call) })));
    return given;
  } finally {
    Object.assign(executor, { code, team });
    gpu?.endTiming();
  }
}

/**
 * The code with other functions for whole steps.
 * @param {Executor} executor @param {Timed[]} found
 */
function timed({ header, code, plan }, found) {
  const kernels = /** @type {Record<string, (args: number, begin: number, end: number, tid: number) => void>} */ (/** @type {unknown} */ (code));
  const steps = header.blocks.flatMap((block) => block.steps);
  const replaced = steps.flatMap((step) => (step.op !== 'wasm' ? [] : [[step.fn, (/** @type {number} */ table) => {
    for (const call of step.calls) {
      const words = call.buffers.length + call.params.length;
      const work = new Int32Array(plan.memory.memory.buffer, table, words + 1)[words];
      const start = performance.now();
      kernels[call.kernel](table, 0, work, 0);
      found.push({ call, place: 'wasm', milliseconds: performance.now() - start });
      table += 4 * (words + 1);
    }
  }]]));
  return { ...code, ...Object.fromEntries(replaced) };
}

/** What a call reads and writes; 0 where a size is not known any more. @param {Executor} executor @param {Call} call */
function bytesOf({ header, env }, call) {
  try {
    return [...new Set(call.buffers)].reduce((sum, buffer) => sum + evaluate(header.buffers[buffer].size, env), 0);
  } catch {
    return 0;
  }
}
