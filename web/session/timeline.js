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
  let found = new Timeline([]);
  /** @type {import('./model.js').Around} */
  const observe = async ({ plan }, run) => {
    plan.tighten();
    plan.observer = found = new Timeline(plan.header.inputs);
    try {
      return await run();
    } finally {
      plan.observer = null;
    }
  };
  await model.run(onCpu, Object.fromEntries(model.outputs.map(({ name }) => [name, null])), null, observe);
  return found.spans().map(({ name, address, size, start, end }) => (
    { name, memory: address < GPU ? 'linear' : 'gpu', address: address < GPU ? address : address - GPU, size, start, end }));
}
