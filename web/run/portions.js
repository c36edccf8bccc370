// Runs a step in portions of a few milliseconds, and checks between them whether to stop.

import { nextPortion } from '../runtime/portions.js';

/** @import { Stop } from '../common/stop.js' */
/** @typedef {(args: number, begin: number, end: number, tid: number) => void} Kernel */

/**
 * Runs the calls of a step one by one on this thread, as its `run_…` function would.
 * @param {Pick<import('./types.js').Executor, 'code' | 'memory'>} executor @param {import('../common/program.js').WasmStep} step
 * @param {import('../runtime/states.js').Transition} plan its layout keeps the size of each call's portions @param {Stop} stop
 */
export async function runInPortions({ code, memory }, { calls }, plan, stop) {
  const kernels = /** @type {Record<string, Kernel>} */ (/** @type {unknown} */ (code));
  const known = (plan.layout.portions ??= new Array(calls.length).fill(1));
  let args = plan.table;
  for (const [n, { kernel, buffers, params }] of calls.entries()) {
    const words = buffers.length + params.length;
    const work = new Int32Array(memory.memory.buffer, args, words + 1)[words];
    for (let begin = 0; begin < work;) {
      const end = Math.min(begin + known[n], work);
      const start = performance.now();
      kernels[kernel](args, begin, end, 0);
      known[n] = nextPortion(end - begin, performance.now() - start);
      begin = end;
      const wait = stop.yieldIfDue();
      if (wait) await wait;
    }
    args += 4 * (words + 1);
  }
}

/** @typedef {{ sent: () => Promise<unknown>, encode: (begin: number, end: number) => void }} Queue sent: resolves when all submitted work is done */

/**
 * Submits the dispatches of a GPU step in portions of a few milliseconds.
 * @param {{ portion: number }} step keeps the size of portions @param {number} count @param {Queue} queue @param {Stop} stop
 */
export async function submitInPortions(step, count, { sent, encode }, stop) {
  for (let begin = 0; begin < count;) {
    const end = Math.min(begin + step.portion, count);
    const start = performance.now();
    encode(begin, end);
    await sent();
    step.portion = nextPortion(end - begin, performance.now() - start);
    await stop.yieldToEventLoop();
    begin = end;
  }
}
