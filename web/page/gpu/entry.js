// The code that only sessions on the page's GPU need: dist/gpu.mjs, which load_code.js fetches.

export { acquireGpu, currentGpu, gpuOf } from '../../gpu/device.js';
export { GpuSession, moveToGpu } from './gpu_session.js';
