// What runs Programs in the page itself: dist/executor.mjs, which load_code.js fetches.

export { Executor } from '../../run/executor.js';
export { acquireGpu, currentGpu, gpuOf } from '../../gpu/device.js';
export { GpuSession, moveToGpu } from './gpu_session.js';
