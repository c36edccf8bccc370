// Sets symbols from the dims of feeds, and checks those dims.

import { evaluate } from '../common/dims.js';
import { InvalidInput } from '../common/errors.js';

/** @import { Env } from '../common/dims.js' */
/** @import { Dim, Input } from '../common/program.js' */
/** @import { WireTensor, WireValue } from '../common/protocol.js' */

/** The feed of one of the Program's inputs. @param {Record<string, WireValue>} feeds @param {Input} input @returns {WireTensor | undefined} */
export function feedOf(feeds, { name, item }) {
  const feed = Object.hasOwn(feeds, name) ? feeds[name] : null;
  return (Array.isArray(feed) ? feed[item ?? -1] : feed) ?? undefined;
}

/**
 * Sets the symbols among an input's dims to the feed's extents.
 * @param {string} name @param {Dim[]} dims @param {readonly number[] | undefined} given @param {Env} env
 */
export function bindDims(name, dims, given, env) {
  if (!given) throw new InvalidInput(`input "${name}" is missing`);
  if (given.length !== dims.length) {
    throw new InvalidInput(`input "${name}" must have rank ${dims.length}, it has rank ${given.length} [${given.join(', ')}]`);
  }
  dims.forEach((dim, axis) => {
    if (typeof dim === 'string' && !env.has(dim)) env.set(dim, given[axis]);
  });
}

/**
 * Checks all dims of a feed, once all symbols have values.
 * @param {string} name @param {Dim[]} dims @param {readonly number[]} given @param {Env} env
 * @param {Record<string, string>} [shown] names of the symbols for messages
 */
export function checkDims(name, dims, given, env, shown = {}) {
  dims.forEach((dim, axis) => {
    const wanted = evaluate(dim, env);
    if (wanted === given[axis]) return;
    const why = typeof dim === 'string' ? `, as "${shown[dim] ?? dim}" is elsewhere` : '';
    throw new InvalidInput(`input "${name}" is [${given.join(', ')}]: index: ${axis} Got: ${given[axis]} Expected: ${wanted}${why}`);
  });
}

/**
 * Values of symbols that follow from the feeds' dims.
 * @param {import('../runtime/planner.js').Planner} plan @param {Record<string, WireValue>} feeds @param {Input[]} inputs that the run reads
 * @returns {Env}
 */
export function dimsOf(plan, feeds, inputs) {
  const env = new Map();
  for (const input of inputs) bindDims(input.name, input.dims, feedOf(feeds, input)?.dims, env);
  plan.guards.compute(env, new Set(env.keys()));
  return env;
}
