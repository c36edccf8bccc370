// What conversions of pictures reuse on a device, and their errors.

import { InvalidInput } from '../../common/errors.js';
import { USAGE } from '../../gpu/flags.js';
import { PARAMETER_BYTES } from './shaders.js';

/** @import { Gpu } from '../../gpu/device.js' */
/** @typedef {{ pipelines: Map<string, Promise<unknown>>, parameters: GPUBuffer, picture: GPUTexture | null }} GpuState */

/** @type {WeakMap<Gpu, GpuState>} */
const states = new WeakMap();

/** @param {Gpu} gpu @returns {GpuState} picture: the texture that pictures are copied into */
export function stateOf(gpu) {
  gpu.throwIfLost();
  const known = states.get(gpu);
  if (known) return known;
  const parameters = gpu.device.createBuffer({ size: PARAMETER_BYTES, usage: USAGE.UNIFORM | USAGE.COPY_DST });
  const state = { pipelines: new Map(), parameters, picture: null };
  states.set(gpu, state);
  return state;
}

/** @template T @param {Gpu} gpu @param {string} key @param {() => Promise<T>} make @returns {Promise<T>} */
export function pipelineOf(gpu, key, make) {
  const { pipelines } = stateOf(gpu);
  const pipeline = /** @type {Promise<T>} */ (pipelines.get(key) ?? make()); // a key has one kind of pipeline
  pipelines.set(key, pipeline);
  pipeline.catch(() => pipelines.delete(key));
  return pipeline;
}

/**
 * Encodes and submits commands on things of the page. Rejects if the device refuses them.
 * @param {Gpu} gpu @param {string} name of what the page gave @param {(encoder: GPUCommandEncoder) => void} encode
 */
export async function submitChecked(gpu, name, encode) {
  const { device } = gpu;
  device.pushErrorScope('validation');
  const encoder = device.createCommandEncoder();
  try {
    encode(encoder);
    device.queue.submit([encoder.finish()]);
  } catch (error) {
    device.popErrorScope().catch(() => null);
    throw error;
  }
  const error = await device.popErrorScope().catch(() => null);
  gpu.throwIfLost();
  if (!error) return;
  if (/destroyed/i.test(error.message)) throw new InvalidInput(`${name} was destroyed`);
  const hint = 'create it on await ort.env.webgpu.device, or pass its device in the options';
  throw new InvalidInput(`${name} belongs to another GPUDevice or is not valid: ${error.message}`, { hint });
}
