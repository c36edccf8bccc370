// What only sessions on the page's GPU run: dist/gpu.mjs, which late_gpu.js fetches.

export { acquireGpu, currentGpu, gpuOf } from '../gpu/device.js';
export { LocalSession } from './local_session.js';
