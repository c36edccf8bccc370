// Checkpoints of a training session: weights, moments and counts, as a safetensors file.
// Twin of pyruntime/training/session/checkpoints.py.

import { InvalidInput } from '../../common/errors.js';
import { floatsOf } from '../../common/half_values.js';
import * as safetensors from '../../common/safetensors.js';
import { LEAST_SCALE, MOST_SCALE } from '../../runtime/step_numbers.js';

/** @import { TrainingInfo } from '../../common/protocol.js' */
/** @import { StepNumbers } from '../../runtime/step_numbers.js' */
/** @typedef {Record<string, Uint8Array>} Values */

const FORMAT = 'pyruntime-training/1';
/** Names in files, and of ours. */
const COUNTS = /** @type {const} */ ([['step', 'step'], ['batch', 'batch'], ['waiting', 'waiting'], ['good_batches', 'goodBatches']]);

/** The weight that a value belongs to, such as that of its optimiser's moments. @param {string} name */
const weightOf = (name) => name.replace(/^(optimizer\/\w+|gradient|start)\//, '');

/** @param {Values} values @param {TrainingInfo} info @param {StepNumbers} numbers */
export function toCheckpoint(values, info, numbers) {
  const shapes = new Map(info.weights.map(({ name, shape, dtype }) => [name, { shape, dtype }]));
  const kept = Object.entries(values).filter(([name]) => !name.startsWith('idle/')); // states that need no place in files
  const tensors = Object.fromEntries(kept.map(([name, bytes]) => {
    const weight = shapes.get(weightOf(name));
    return [name, { ...weight ?? { dtype: 'float32', shape: [bytes.length / 4] }, bytes }];
  }));
  const counts = Object.fromEntries([...COUNTS, /** @type {const} */ (['loss_scale', 'lossScale'])].map(([key, name]) => [key, String(numbers[name])]));
  return safetensors.write(tensors, { format: FORMAT, ...counts, optimizer: info.optimizer, seed: String(info.seed) });
}

/**
 * The values of a checkpoint, or of another file with weights. Errors: InvalidInput if it does not fit the session
 * @param {Uint8Array} file @param {TrainingInfo} info @returns {{ values: Values, counts: Record<string, number> }}
 */
export function fromCheckpoint(file, info) {
  const { tensors, metadata } = safetensors.read(file);
  const shapes = new Map(info.weights.map(({ name, shape }) => [name, shape]));
  const types = new Map(info.weights.map(({ name, dtype }) => [name, dtype]));
  const own = Object.entries(tensors).filter(([name]) => shapes.has(weightOf(name)));
  for (const [name, { shape: found }] of own) {
    const shape = shapes.get(weightOf(name));
    if (String(found) !== String(shape)) throw new InvalidInput(`"${name}" has shape [${shape}], in the checkpoint [${found}]`);
  }
  const missing = info.weights.slice(0, info.count).find(({ name }) => !Object.hasOwn(tensors, name));
  if (missing) throw new InvalidInput(`the checkpoint has no weight "${missing.name}"`, { hint: 'it belongs to another model' });
  const isOurs = metadata.format === FORMAT;
  if (isOurs && metadata.optimizer !== info.optimizer) {
    throw new InvalidInput(`the checkpoint is of optimizer ${metadata.optimizer}, the session has ${info.optimizer}`);
  }
  const values = Object.fromEntries(own.map(([name, tensor]) => [name, inType(tensor, types.get(weightOf(name)))]));
  const counts = Object.fromEntries(COUNTS.map(([key, name]) => [name, count(key, metadata[key] ?? '0')]));
  if (info.lossScale === 0 && metadata.loss_scale !== undefined) counts.lossScale = scaleOf(metadata.loss_scale);
  return { values, counts };
}

/** @param {string} text */
function scaleOf(text) {
  const scale = Number(text);
  if (!(scale >= LEAST_SCALE && scale <= MOST_SCALE)) throw new InvalidInput(`the checkpoint says loss_scale "${text}"`, { hint: 'it is damaged' });
  return scale;
}

/** @param {string} key @param {string} text */
function count(key, text) {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidInput(`the checkpoint says ${key} "${text}"`, { hint: 'a number is expected' });
  return Number(text);
}

/** A copy in the type of a weight. @param {safetensors.Stored} tensor @param {string} [wanted] */
function inType({ dtype, bytes }, wanted) {
  if (dtype === wanted) return bytes.slice();
  const floats = dtype === 'int64' ? Float64Array.from(new BigInt64Array(bytes.slice().buffer), Number)
    : dtype === 'int32' ? Float64Array.from(new Int32Array(bytes.slice().buffer)) : floatsOf(bytes, dtype);
  return new Uint8Array((wanted === 'float64' ? Float64Array : Float32Array).from(floats).buffer);
}
