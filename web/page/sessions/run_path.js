// Decides where a run executes.

/**
 * hasMoved: the session runs on the page's GPU; hasGpu: it has a GPU, in the page or in the worker; hasGpuTensors: feeds or tensors to
 * fill are GPUBuffers of the page, which cannot be sent to the worker; isTimed: the run times its kernels; dimsDiffer: dims of one
 * name have several sizes, so the worker compiles anew; program: a short Program in the page serves these feeds.
 * @typedef {{ hasMoved: boolean, hasGpu: boolean, hasGpuTensors: boolean, isTimed: boolean, dimsDiffer: boolean, program: unknown }} Run
 */
/** @typedef {'page' | 'worker' | "page's GPU"} Place */

/** @param {Run} run @returns {{ place: Place, reason: string }} of the first rule that applies */
export function runPath({ hasMoved, hasGpu, hasGpuTensors, isTimed, dimsDiffer, program }) {
  const rules = /** @type {[unknown, Place, string][]} */ ([
    [hasMoved, "page's GPU", 'the session is there'],
    [hasGpu && hasGpuTensors, "page's GPU", 'its tensors are there'],
    [isTimed, 'worker', 'kernels are timed'],
    [dimsDiffer, 'worker', 'dims differ'],
    [program, 'page', 'runs are short'],
    [true, 'worker', 'the default'],
  ]);
  const [[, place, reason]] = rules.filter(([applies]) => applies);
  return { place, reason };
}
