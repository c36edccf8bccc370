// Where a run goes.

/**
 * isOnPageGpu: the session runs on the page's GPU; hasGpu: it has a GPU, in the page or in the worker; hasGpuTensors: feeds or
 * tensors to fill are GPUBuffers of the page; isTimed: the run times its kernels; hasDifferingDims: dims of one name have several
 * sizes; hasPageProgram: whether a short Program in the page serves these feeds.
 * @typedef {{ isOnPageGpu: boolean, hasGpu: boolean, hasGpuTensors: boolean, isTimed: boolean, hasDifferingDims: boolean, hasPageProgram: () => boolean }} Run
 */

/** @param {Run} run @returns {{ place: 'page' | "page's GPU" | 'worker', reason: string }} the first rule that applies */
export function runPath({ isOnPageGpu, hasGpu, hasGpuTensors, isTimed, hasDifferingDims, hasPageProgram }) {
  const gpu = "page's GPU";
  if (isOnPageGpu) return { place: gpu, reason: 'the session is there' };
  if (hasGpu && hasGpuTensors) return { place: gpu, reason: 'its tensors are there' }; // a GPUBuffer cannot be sent to the worker
  if (isTimed) return { place: 'worker', reason: 'kernels are timed' };
  if (hasDifferingDims) return { place: 'worker', reason: 'dims differ' }; // the worker compiles anew, and warns
  if (hasPageProgram()) return { place: 'page', reason: 'runs are short' };
  return { place: 'worker', reason: 'the default' };
}
