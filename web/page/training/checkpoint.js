// Checkpoints of a training session: weights, moments and counts, as a safetensors file.

import { numbers as numbersOf } from '../../common/elements.js';
import { floatsOf } from '../../common/half_values.js';
import { warn } from '../../common/log.js';
import * as safetensors from './safetensors.js';
import { goOnFrom, IDLE, metadataOf, weightOf } from '../../runtime/trained_weights.js';

/** @import { TrainedWeights } from '../../runtime/trained_weights.js' */
/** @import { StepNumbers } from '../../runtime/step_numbers.js' */
/** Bytes by name of the state. @typedef {Record<string, Uint8Array>} Values */

/** @param {Values} values @param {TrainedWeights} weights @param {StepNumbers} numbers @param {string} optimizer */
export function toCheckpoint(values, weights, numbers, optimizer) {
  const stored = Object.entries(values).filter(([name]) => !name.startsWith(IDLE));
  const tensors = Object.fromEntries(stored.map(([name, bytes]) => {
    const { dtype } = weights.named(weightOf(name));
    return [name, { shape: weights.shapeOf(name), dtype, bytes }];
  }));
  return safetensors.write(tensors, metadataOf(numbers, weights, optimizer, String));
}

/**
 * The values of a checkpoint, or of another file with weights; `numbers` go on from it. Errors: InvalidInput if it does not fit
 * @param {Uint8Array} file @param {TrainedWeights} weights @param {StepNumbers} numbers @param {string} optimizer
 * @returns {Values}
 */
export function fromCheckpoint(file, weights, numbers, optimizer) {
  const { tensors, metadata } = safetensors.read(file);
  const types = Object.fromEntries(Object.entries(tensors).map(([name, { dtype }]) => [name, dtype]));
  const others = weights.notLoaded(types, metadata);
  const fitting = weights.fitting(new Map(Object.entries(tensors).map(([name, { shape }]) => [name, shape])));
  goOnFrom(metadata, numbers, weights, optimizer, Number);
  if (others) warn(others);
  return Object.fromEntries([...fitting].map(([name, { dtype }]) => [name, inType(tensors[name], dtype)]));
}

/** A copy in the type of a weight. @param {safetensors.Stored} tensor @param {string} wanted */
function inType({ dtype, bytes }, wanted) {
  if (dtype === wanted) return bytes.slice();
  const floats = dtype.startsWith('int') ? numbersOf(bytes, dtype) : floatsOf(bytes, dtype);
  return new Uint8Array((wanted === 'float64' ? Float64Array : Float32Array).from(floats).buffer);
}
