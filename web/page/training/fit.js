// Epochs of steps over a set of data: `TrainingSession.fit`. pyruntime/runtime/fitting.py decides.

import { InvalidInput } from '../../common/errors.js';
import { optionsOf } from '../../common/records.js';
import { FitEpoch, FitPlan, LossMean, rowOrder } from '../../runtime/fitting.js';
import { atOnce, makeSteps } from './several_steps.js';

/** @import { Session as Trained } from './several_steps.js' */
/** @typedef {{ type: string, data: unknown[], dims: readonly number[] }} Tensor */
/** @typedef {Record<string, Tensor>} Feeds */
/** Of so many rows in an epoch. @typedef {(count: number, epoch: number) => number[]} Order */
/** What is read of the session. @typedef {{ targets: string[], Tensor: { new (type: string, data: unknown[], dims: number[]): Tensor }, batchSize: number }} Reading */

const DEFAULTS = {
  epochs: 1, batchSize: 32, validation: /** @type {unknown} */ (null), callbacks: /** @type {Function[]} */ ([]), shuffle: true,
  seed: /** @type {number | null} */ (null), patience: /** @type {number | null} */ (null), keepBest: true,
  signal: /** @type {AbortSignal | null} */ (null),
};

/**
 * @typedef {Trained & { copied(feeds: Feeds): import('../sessions/page_runner.js').Feeds, observe(value: number): Promise<number>,
 *   evaluate(feeds: Feeds, outputs: string[], options: object): Promise<{ loss?: number }> }} Session
 */
/**
 * Calls back after each step and each epoch; `false` ends the work.
 * @param {Session} session @param {unknown} dataset @param {object} [options]
 * @returns {Promise<{ epochs: FitEpoch[], best: number }>}
 */
export async function fit(session, dataset, options) {
  const { epochs, batchSize, validation, callbacks, shuffle, seed, patience, keepBest, signal } = optionsOf(options, DEFAULTS, 'fit');
  const plan = new FitPlan(epochs, batchSize, patience);
  const reading = { targets: Object.keys(session.info.targets), Tensor: session.parts.Tensor, batchSize };
  const [key, first] = [seed ?? session.info.seed, session.counts.batch];
  const order = shuffle ? (/** @type {number} */ count, /** @type {number} */ epoch) => rowOrder(count, key, first + epoch) : asGiven;
  const tell = async (/** @type {object} */ result) => {
    for (const callback of callbacks) if (await callback(result) === false) plan.isStopped = true;
  };
  /** @type {(() => Promise<void>) | null} */
  let best = null;
  while (!plan.isOver) {
    plan.begin();
    for await (const group of groups(batches(dataset, reading, plan.epoch, order), () => (callbacks.length ? 1 : atOnce(session)))) {
      const copies = group.map((feeds) => session.copied(feeds));
      for (const [n, result] of (await session.inTurn(() => makeSteps(session, copies, null, signal))).entries()) {
        plan.add(result.loss, result.rate, result.applied, rowsOf(group[n], reading));
        await tell(result);
      }
      if (plan.isStopped) break;
    }
    const done = plan.end(validation === null ? null : await validated(session, validation, reading, plan.epoch, signal));
    if (validation !== null && keepBest && done.isBest) best = await session.keep();
    if (session.info.schedule === 'plateau') await session.observe(done.validation ?? done.loss);
    await tell({ ...done });
  }
  if (best && plan.best !== plan.done.length) await best();
  return { epochs: plan.done.map((done) => ({ ...done })), best: plan.best };
}

/** Batches that a call makes steps with. @param {AsyncIterable<Feeds>} given @param {() => number} most @returns {AsyncGenerator<Feeds[]>} */
async function* groups(given, most) {
  /** @type {Feeds[]} */
  let group = [];
  for await (const feeds of given) {
    group.push(feeds);
    if (group.length < most()) continue;
    yield group;
    group = [];
  }
  if (group.length) yield group;
}

/** The mean loss of held-out data. @param {Session} session @param {unknown} data @param {Reading} reading @param {number} epoch @param {AbortSignal | null} signal */
async function validated(session, data, reading, epoch, signal) {
  const losses = new LossMean();
  for await (const feeds of batches(data, reading, epoch, asGiven)) {
    const { loss } = await session.evaluate(feeds, [], { signal });
    if (loss === undefined) throw new InvalidInput('the validation data have no targets', { hint: `their names: ${reading.targets.join(', ')}` });
    losses.add(loss, rowsOf(feeds, reading));
  }
  if (!losses.rows) throw new InvalidInput('the validation data have no batch');
  return losses.mean;
}

/**
 * @param {unknown} given tensors by name, whose rows make batches, a list or other iterable of batches, or a function of the epoch's
 * number that returns one of these @param {Reading} reading @param {number} epoch @param {Order} order
 * @returns {AsyncGenerator<Feeds>}
 */
async function* batches(given, reading, epoch, order) {
  const data = typeof given === 'function' ? await given(epoch) : given;
  if (Array.isArray(data)) {
    for (const n of order(data.length, epoch)) yield data[n];
  } else if (isIterable(data)) {
    yield* data;
  } else if (typeof data === 'object' && data !== null) {
    yield* ofTensors(/** @type {Feeds} */ (data), reading, epoch, order);
  } else {
    throw new InvalidInput(`data cannot be ${data}`, { hint: 'tensors by name, an iterable of batches, or a function that returns one' });
  }
}

/** @param {unknown} data @returns {data is AsyncIterable<Feeds>} */
const isIterable = (data) => typeof data === 'object' && data !== null && (Symbol.asyncIterator in data || Symbol.iterator in data);

/** @param {Feeds} tensors @param {Reading} reading @param {number} epoch @param {Order} order */
function* ofTensors(tensors, { batchSize, Tensor }, epoch, order) {
  const counts = Object.entries(tensors).map(([name, tensor]) => {
    if (!tensor?.dims?.length) throw new InvalidInput(`"${name}" has no rows`, { hint: 'tensors whose first axis is that of the samples' });
    return tensor.dims[0];
  });
  if (new Set(counts).size !== 1) throw new InvalidInput(`the tensors have different numbers of rows: ${counts.join(', ')}`);
  const numbers = order(counts[0], epoch);
  for (let n = 0; n < numbers.length; n += batchSize) {
    const rows = numbers.slice(n, n + batchSize);
    yield Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, taken(tensor, rows, Tensor)]));
  }
}

/** Some rows of a tensor. @param {Tensor} tensor @param {number[]} rows @param {Reading['Tensor']} Tensor */
function taken({ type, data, dims: [count, ...rest] }, rows, Tensor) {
  const size = data.length / count;
  const part = new (/** @type {ArrayConstructor} */ (data.constructor))(rows.length * size);
  rows.forEach((row, n) => {
    for (let i = 0; i < size; i++) part[n * size + i] = data[row * size + i];
  });
  return new Tensor(type, part, [rows.length, ...rest]);
}

/** @type {Order} */
const asGiven = (count) => [...Array(count).keys()];

/** Of a batch: of its first target, or else of its first feed with an axis. @param {Feeds} feeds @param {Reading} reading @returns {number} */
function rowsOf(feeds, { targets }) {
  const name = [...targets, ...Object.keys(feeds)].find((each) => feeds[each]?.dims?.length);
  return name === undefined ? 1 : feeds[name].dims[0];
}
