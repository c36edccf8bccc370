// What only sessions on the page's GPU run: dist/gpu.mjs, which load_code.js fetches.

export { acquireGpu, currentGpu, gpuOf } from '../../gpu/device.js';
export { GpuSession } from './gpu_session.js';
