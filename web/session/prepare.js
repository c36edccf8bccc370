// Plans a session's memory for its largest shapes, and takes it.

import { elementSize, viewOf } from '../common/elements.js';
import { PreparedInput, preparedShapes } from '../runtime/prepared_shapes.js';

/** @import { ValueInfo, WireTensor } from '../common/protocol.js' */
/** @typedef {Record<string, number | number[]>} Dims sizes by name of a dim, or sizes of all dims by name of an input */

/**
 * Runs the model once on zeros of these shapes. Later runs of these shapes and of smaller ones find memory and addresses.
 * @param {import('./model.js').Model} model @param {Dims} dims
 */
export async function prepare(model, dims) {
  const fetches = Object.fromEntries(model.outputs.map(({ name }) => [name, null]));
  await model.run(zeros(model.inputs, dims), fetches, null, reserve);
}

/** @type {import('./model.js').Around} */
async function reserve(executor, run) {
  const { plan } = executor;
  let env = new Map();
  plan.beginReserve();
  try {
    const results = await run();
    env = executor.env;
    return results;
  } finally {
    plan.endReserve(env);
  }
}

/** @param {ValueInfo[]} inputs @param {Dims} dims @returns {Record<string, WireTensor>} */
function zeros(inputs, dims) {
  const declared = inputs.map(({ name, dtype, shape, sequence, optional, hasDefault, map }) => (
    new PreparedInput(name, shape, dtype !== null && !sequence, !(optional || hasDefault || map))));
  const shapes = preparedShapes(declared, dims, JSON.stringify);
  return Object.fromEntries([...shapes].map(([name, found]) => {
    const type = /** @type {string} */ (inputs.find((input) => input.name === name)?.dtype);
    const count = found.reduce((product, size) => product * size, 1);
    const data = type === 'string' ? new Array(count).fill('') : viewOf(new Uint8Array(count * elementSize(type)), type);
    return [name, { type, dims: found, data }];
  }));
}
