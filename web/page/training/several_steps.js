// Steps with several batches. Where steps are short, the worker makes many of them for one message.

import { PyRuntimeError } from '../../common/errors.js';
import { mapTensors } from '../../common/records.js';
import { RESULT } from '../../runtime/training_steps.js';

/** @import { StepOutcome, StepResult, StepRun, TrainingSteps } from '../../runtime/training_steps.js' */
/** @import { SessionWeights } from './session_weights.js' */
/** @import { Feeds } from '../sessions/page_runner.js' */
/**
 * @typedef {SessionWeights & { runs: TrainingSteps, stepTime: number, feeds(run: StepRun, feeds: Feeds): Feeds,
 *   perform(run: StepRun, feeds: Feeds, signal: AbortSignal | null): Promise<StepResult>,
 *   ended(run: StepRun, values: number[]): StepOutcome }} Session
 */

const TURN = 20; // ms that a message may take, so that a signal stops the work soon

/**
 * Makes a step with each batch. Errors: those of `step`; the steps before it are made
 * @param {Session} session @param {Feeds[]} batches @param {number | null} rate @param {AbortSignal | null} signal
 * @param {boolean} [isNamed] whether errors tell the number of the batch @returns {Promise<StepResult[]>}
 */
export async function makeSteps(session, batches, rate, signal, isNamed = false) {
  /** @type {StepResult[]} */
  const results = [];
  while (results.length < batches.length) {
    const rest = batches.slice(results.length, results.length + atOnce(session));
    try {
      const start = performance.now();
      const made = !signal?.aborted && rest.length > 1 && await together(session, rest, rate);
      results.push(...made || [await session.perform(session.runs.step(rate), rest[0], signal)]);
      session.stepTime = (performance.now() - start) / (made || rest.slice(0, 1)).length;
    } catch (error) {
      if (isNamed && error instanceof PyRuntimeError) error.message = `batch ${results.length + 1}: ${error.message}`;
      throw error;
    }
  }
  return results;
}

/** How many steps a message may ask for. @param {Session} session */
export function atOnce({ runs, info, stepTime }) {
  const isPlain = !runs.accumulates && !runs.numbers.isDynamic && !Object.keys(info.stepOutputs).length;
  return isPlain ? Math.max(1, Math.floor(TURN / stepTime)) : 1;
}

/**
 * Steps for one message, which ends before a batch that is refused, and after one that changes nothing, because the numbers of the
 * next step depend on that. @param {Session} session @param {Feeds[]} batches @param {number | null} rate
 * @returns {Promise<StepResult[] | null>} null if there is none
 */
async function together(session, batches, rate) {
  const runs = session.runs.next(rate, batches.length);
  /** @type {import('../../common/protocol.js').RunsOfSteps['runs']} */
  const sent = [];
  for (const [n, run] of runs.entries()) {
    try {
      const feeds = session.handler.checked(session.feeds(run, batches[n]), run.outputs);
      sent.push(mapTensors(feeds, ({ type, dims, data }) => ({ type, dims: [...dims], data })));
    } catch {
      break;
    }
  }
  if (!sent.length) return null;
  const { watch } = session.handler;
  const { results } = await watch.during(() => session.states('steps', { output: RESULT, runs: sent }));
  const numbers = [...new Float32Array(results.buffer)];
  if (!numbers.length) return null;
  return runs.slice(0, numbers.length / 3).map((run, n) => {
    if (n) watch.counts.succeed(0);
    return { ...session.ended(run, numbers.slice(3 * n, 3 * n + 3)).result };
  });
}
