/**
 * What is said of the GPU before it is acquired: which adapter is asked for, or given, or a device in place of ours
 * (env.webgpu of the page); exclusive: whether nobody but us uses it, so that all that goes wrong with it is ours.
 * @type {{ adapterOptions: GPURequestAdapterOptions, adapter: GPUAdapter | null, device: GPUDevice | null, exclusive: boolean }}
 */
export const setting = { adapterOptions: { powerPreference: 'high-performance' }, adapter: null, device: null, exclusive: true };
