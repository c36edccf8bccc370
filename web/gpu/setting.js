/**
 * Settings for acquiring the GPU (env.webgpu of the page): options to request an adapter with, or an adapter, or a device.
 * exclusive: only the engine uses the device, so all its uncaptured errors are the engine's. tensorParts: creates what
 * sessions with tensors on the GPU need; null in the worker, where none has.
 * @type {{ adapterOptions: GPURequestAdapterOptions, adapter: GPUAdapter | null, device: GPUDevice | null, exclusive: boolean,
 *   tensorParts: ((gpu: any) => { moves: import('./moves.js').Moves, rooms: import('./rooms.js').Rooms }) | null }}
 */
export const setting = { adapterOptions: { powerPreference: 'high-performance' }, adapter: null, device: null, exclusive: true, tensorParts: null };
