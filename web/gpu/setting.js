/** @import { GpuCaches } from './caches.js' */
/** @import { Moves } from './moves.js' */
/** @import { Gpu, Rooms } from './rooms.js' */
/**
 * What sessions with tensors on the GPU need. cachesFor: caches of an executor, by the inputs that only its GPU reads
 * @typedef {object} TensorParts
 * @property {Moves} moves
 * @property {Rooms} rooms
 * @property {(executor: import('../run/types.js').Executor, runner: import('./caches.js').Runner, inputs: import('../common/program.js').Input[]) => GpuCaches} cachesFor
 */
/**
 * Settings for acquiring the GPU (env.webgpu of the page): options to request an adapter with, or an adapter, or a device.
 * exclusive: only the engine uses the device, so all its uncaptured errors are the engine's; tensorParts: null in the worker,
 * where no session has tensors on the GPU.
 * @type {{ adapterOptions: GPURequestAdapterOptions, adapter: GPUAdapter | null, device: GPUDevice | null, exclusive: boolean,
 *   tensorParts: ((gpu: Gpu) => TensorParts) | null }}
 */
export const setting = { adapterOptions: { powerPreference: 'high-performance' }, adapter: null, device: null, exclusive: true, tensorParts: null };
