// Plans a session's memory for its largest shapes, and takes it. Twin of pyruntime/native/sessions/prepare.py.

import { elementSize, viewOf } from '../common/elements.js';
import { InvalidInput } from '../common/errors.js';
import { preparedShape } from '../runtime/prepared_shapes.js';

/** @import { ValueInfo, WireTensor } from '../common/protocol.js' */
/** @typedef {Record<string, number | number[]>} Dims sizes by name of a dim, or sizes of all dims by name of an input */

/** @param {unknown} size */
const isSize = (size) => Number.isSafeInteger(size) && Number(size) >= 0;

/**
 * Runs the model once on zeros of these shapes. Later runs of these shapes and of smaller ones find memory and addresses.
 * @param {import('./model.js').Model} model @param {Dims} dims
 */
export async function prepare(model, dims) {
  checkDims(dims, model.inputs);
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

/** @param {Dims} dims @param {ValueInfo[]} inputs */
function checkDims(dims, inputs) {
  const named = new Set(inputs.flatMap(({ shape }) => shape ?? []));
  for (const [name, size] of Object.entries(dims)) {
    const isInput = inputs.some((input) => input.name === name);
    if (!(Array.isArray(size) ? isInput && size.every(isSize) : named.has(name) && isSize(size))) {
      const hint = `sizes by name of a dim (${[...named].filter((dim) => typeof dim === 'string').join(', ')}), or lists by name of an input`;
      throw new InvalidInput(`dims cannot have "${name}": ${JSON.stringify(size)}`, { hint });
    }
  }
}

/** @param {ValueInfo[]} inputs @param {Dims} dims @returns {Record<string, WireTensor>} */
function zeros(inputs, dims) {
  const sizes = /** @type {Record<string, number>} */ (Object.fromEntries(Object.entries(dims).filter(([, size]) => !Array.isArray(size))));
  const given = inputs.filter(({ name, optional, hasDefault, map }) => Array.isArray(dims[name]) || !(optional || hasDefault || map));
  return Object.fromEntries(given.map(({ name, dtype, shape, sequence }) => {
    const own = Array.isArray(dims[name]) ? /** @type {number[]} */ (dims[name]) : null;
    if (sequence || dtype === null || !shape && !own) {
      throw new InvalidInput(`input "${name}" is no tensor of a known type and rank, so its memory cannot be prepared`);
    }
    const found = preparedShape(name, shape ?? /** @type {number[]} */ (own), sizes, own);
    const count = found.reduce((product, size) => product * size, 1);
    const data = dtype === 'string' ? new Array(count).fill('') : viewOf(new Uint8Array(count * elementSize(dtype)), dtype);
    return [name, { type: dtype, dims: found, data }];
  }));
}
