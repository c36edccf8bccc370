/**
 * What is said of the GPU before it is acquired: which adapter is asked for, or given, or a device in place of ours
 * (env.webgpu of the page); alone: whether nobody but us uses it, so that all that goes wrong with it is ours.
 * @type {{ wishes: GPURequestAdapterOptions, adapter: GPUAdapter | null, device: GPUDevice | null, alone: boolean }}
 */
export const setting = { wishes: { powerPreference: 'high-performance' }, adapter: null, device: null, alone: true };
