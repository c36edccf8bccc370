/**
 * Settings for acquiring the GPU (env.webgpu of the page): options to request an adapter with, or an adapter, or a device.
 * exclusive: only the engine uses the device, so all its uncaptured errors are the engine's.
 * @type {{ adapterOptions: GPURequestAdapterOptions, adapter: GPUAdapter | null, device: GPUDevice | null, exclusive: boolean }}
 */
export const setting = { adapterOptions: { powerPreference: 'high-performance' }, adapter: null, device: null, exclusive: true };
