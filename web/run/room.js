// Tensors in buffers with capacity for more along an axis: KV caches that grow in place.

import { elementSize } from '../common/elements.js';
import { byteRanges } from '../runtime/growth.js';
import { evaluate, evaluateAll } from '../common/dims.js';

/** @import { Env } from '../common/dims.js' */
/** @import { ByteRanges } from '../runtime/growth.js' */

/**
 * Sets the symbols of inputs' capacities: to the existing capacity, or else to the least one.
 * @param {import('../runtime/planner.js').Planner} plan @param {import('../common/program.js').Input[]} inputs that the run reads
 * @param {Env} env @param {Map<number, number>} places by buffer
 */
export function bindRooms(plan, inputs, env, places) {
  for (const { buffer, room } of inputs) {
    if (room) env.set(room.places, places.get(buffer) ?? plan.leastCapacity(buffer, evaluate(room.least, env)));
  }
}

/**
 * The byte ranges of a tensor in its buffer.
 * @param {import('../common/program.js').TensorValue | import('../common/program.js').Input} value with a capacity @param {Env} env
 */
export function rangesOf({ dtype, dims, room }, env) {
  const { axis, places } = /** @type {import('../common/program.js').Room} */ (room);
  return byteRanges(evaluateAll(dims, env), axis, evaluate(places, env), elementSize(dtype));
}

/** Writes a tensor into its buffer. @param {ArrayBufferView} data @param {Uint8Array} buffer @param {ByteRanges} ranges */
export function scatter(data, buffer, { count, length, stride }) {
  for (let n = 0; n < count; n++) buffer.set(new Uint8Array(data.buffer, data.byteOffset + n * length, length), n * stride);
}

/**
 * The bytes of a tensor in its buffer.
 * @param {Uint8Array} buffer @param {ByteRanges} ranges @param {number} [known] bytes to skip at the start of each range
 * @param {Uint8Array} [bytes] the target
 */
export function gather(buffer, { count, length, stride }, known = 0, bytes = new Uint8Array(count * (length - known))) {
  const size = length - known;
  for (let n = 0; n < count; n++) bytes.set(buffer.subarray(n * stride + known, n * stride + length), n * size);
  return bytes;
}

/**
 * Whether the last row of all byte ranges was written (is not 0). If new rows do not come last (`firstNewRow`), it is unwritten.
 * @param {Uint8Array} bytes @param {ByteRanges} ranges
 */
export function endsInNew(bytes, { count, length, stride, row }) {
  for (let n = 0; n < count; n++) if (bytes.subarray(n * stride + length - row, n * stride + length).every((byte) => byte === 0)) return false;
  return true;
}
