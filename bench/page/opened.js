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
  return { ...timing, difference: difference(outputs, wanted) };
}

/** Runs the session once more. */
export const again = async () => void (await session?.run());
