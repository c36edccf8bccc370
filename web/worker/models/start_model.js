// Starts a model that is open: afterwards it accepts runs.

/** @import { Timings } from '../../common/protocol.js' */
/** @import { Stop } from '../../common/stop.js' */
/** @import { Model } from '../../session/model.js' */
/** @import { OnProgress } from './model_files.js' */

/**
 * @param {Model} model @param {OnProgress} progress @param {Omit<Timings, 'init'>} times @param {Stop | null} stop
 * @returns {Promise<{ model: Model, timings: Timings }>}
 */
export async function started(model, progress, times, stop) {
  const start = performance.now();
  progress({ phase: 'init', loaded: 0, total: 1 });
  try {
    await stop?.yieldToEventLoop();
    await model.start(stop);
    await stop?.yieldToEventLoop();
  } catch (error) {
    model.release();
    throw error;
  }
  progress({ phase: 'init', loaded: 1, total: 1 });
  return { model, timings: { ...times, init: performance.now() - start } };
}
