// The timeline of a run's memory (pyruntime/runtime/timeline.py), as `pyruntime memory` draws it.

import { GPU } from '../runtime/arena.js';
import { Timeline } from '../runtime/timeline.js';

/**
 * Runs once, and plans its memory again, without room for other shapes.
 * @param {import('./model.js').Model} model @param {Record<string, import('../common/protocol.js').WireValue>} feeds
 * @returns {Promise<import('../common/protocol.js').BufferSpan[]>}
 */
export async function timeline(model, feeds) {
  const { feeds: onCpu } = await model.compileFor(feeds);
  const { plan } = /** @type {import('../run/executor.js').Executor} */ (model.table.latestExecutor);
  plan.tighten();
  const found = new Timeline(plan.header.inputs);
  plan.observer = found;
  try {
    await model.run(onCpu, Object.fromEntries(model.outputs.map(({ name }) => [name, null])), null);
  } finally {
    plan.observer = null;
  }
  return found.spans().map(({ name, address, size, start, end }) => (
    { name, memory: address < GPU ? 'linear' : 'gpu', address: address < GPU ? address : address - GPU, size, start, end }));
}
