// Opens and runs one session of one runtime in separate steps, between which calls are counted.

import { start } from './measure.js';
import { difference, expected, Feeds, fetchBuffer } from './model.js';

/** @typedef {import('./measure.js').Session} Session */

/** @type {Session | null} */
let session = null;

/** @param {Record<string, import('./measure.js').Runtime>} runtimes one @param {import('./model.js').ModelInfo} info */
export async function open(runtimes, info) {
  await session?.release();
  session = null;
  const [model, data, wanted] = await Promise.all([fetchBuffer(info.model), fetchBuffer(info.data), expected(info)]);
  const [runtime] = Object.values(runtimes);
  const { session: made, timing, outputs } = await start(runtime, model, new Feeds(info, data));
  session = made;
  const explained = await /** @type {any} */ (made).session.explain?.();
  return { ...timing, difference: difference(outputs, wanted), loops: explained?.nodes.filter((/** @type {any} */ node) => node.loop) };
}

/** Runs the session once more. @param {boolean} [stoppable] with a signal, which changes how the run is submitted */
export const again = async (stoppable) => void (await session?.run(stoppable ? { signal: new AbortController().signal } : {}));

/**
 * Starts a run, stops it after some milliseconds, and releases the session. Returns the milliseconds from the stop until
 * the session is released, which waits for the work in progress; null if the run ended before.
 * @param {number} after
 */
export async function stop(after) {
  const [controller, stopped] = [new AbortController(), /** @type {Session} */ (session)];
  const isStopped = stopped.run({ signal: controller.signal }).then(() => false, () => true);
  await new Promise((resolve) => setTimeout(resolve, after));
  const start = performance.now();
  controller.abort();
  const found = await isStopped;
  session = null;
  await stopped.release();
  return found ? performance.now() - start : null;
}
