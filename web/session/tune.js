// Measures schedules on this machine, kernel by kernel.

import { Executor } from '../run/executor.js';
import { InvalidInput } from '../common/errors.js';
import { Turns } from '../runtime/turns.js';
import { profile } from './profile.js';

/** @import { ProgramData } from '../common/program.js' */
/** @import { Times } from '../runtime/turns.js' */
/** @import { Times as PlainTimes } from './compiler.js' */
/** @import { Model } from './model.js' */
/** @typedef {Record<string, import('../common/protocol.js').WireValue>} Feeds */

const COLD = 3; // runs of each that do not count: the browser optimises their code meanwhile
const [LONG, MOST] = [5, 20]; // milliseconds, times: so often do kernels of short runs run, because Chromium rounds the GPU's clock to 0.1 ms

/**
 * Measures candidates for these feeds, `seconds` each. The session does not change.
 * @param {Model} model @param {Feeds} feeds @param {number} seconds @returns {Promise<import('../common/protocol.js').Tuned>}
 */
export async function tune(model, feeds, seconds) {
  if (!(seconds >= 0 && seconds < Infinity)) throw new InvalidInput(`seconds cannot be ${seconds}`, { hint: 'a number from 0 on' });
  if (!model.compiler.tuning) {
    throw new InvalidInput('an exported program holds no model to tune', { hint: 'tune it before it is exported' });
  }
  const start = performance.now();
  const { feeds: onCpu, described } = await model.compileFor(feeds);
  const tuning = await model.compiler.tuning(described);
  try {
    await withExecutor(model, tuning.standard, async (standard) => {
      for (let program; (program = tuning.next());) {
        await withExecutor(model, program, async (other) => tuning.measured(await turns(standard, other, onCpu, seconds)));
      }
      if (tuning.result().before === null) tuning.measured(await turns(standard, standard, onCpu, 0)); // there was no candidate
    });
    return { ...tuning.result(), took: performance.now() - start };
  } finally {
    tuning.destroy();
  }
}

/** @param {Model} model @param {ProgramData} program @param {(executor: Executor) => Promise<void>} work */
async function withExecutor(model, program, work) {
  try {
    const executor = await Executor.create(program, await model.weights(program), model.compiler, model.host);
    try {
      await work(executor);
    } finally {
      executor.release();
    }
  } finally {
    program.python?.destroy();
  }
}

/**
 * Runs both Programs in turns, whole and kernel by kernel. Between turns the worker handles calls.
 * @param {Executor} a @param {Executor} b @param {Feeds} feeds @param {number} seconds @returns {Promise<[PlainTimes, PlainTimes]>}
 */
async function turns(a, b, feeds, seconds) {
  const [found, both] = [new Turns(), [a, b]];
  for (let count = 0; count < COLD; count++) for (const executor of both) await whole(executor, feeds);
  const end = performance.now() + 1000 * seconds;
  while (found.areFew || performance.now() < end) {
    const took = [0, 0];
    for (const n of found.order) took[n] = await turn(both[n], feeds, found.both[n]);
    found.add(took);
    await new Promise((done) => setTimeout(done));
  }
  const [own, its] = found.both.map(({ run, kernels }) => ({ run, kernels: Object.fromEntries(kernels) }));
  return [own, its];
}

/** A run that reads all outputs, so that it waits for the GPU. @param {Executor} executor @param {Feeds} feeds */
const whole = (executor, feeds) => executor.run(feeds, Object.fromEntries(executor.header.outputs.map(({ name }) => [name, null])));

/** Returns the milliseconds of a run; then times the kernels of a second run. @param {Executor} executor @param {Feeds} feeds @param {Times} best */
async function turn(executor, feeds, best) {
  const start = performance.now();
  await whole(executor, feeds);
  const took = Math.max(performance.now() - start, 1e-3); // a clock may be coarse
  /** @type {import('../common/protocol.js').KernelTiming[]} */
  const timings = [];
  await profile(executor, () => executor.run(feeds, {}), timings, Math.max(1, Math.min(MOST, Math.round(LONG / took))));
  best.add(timings.map(({ node }) => node), timings.map(({ milliseconds }) => milliseconds));
  return took;
}
