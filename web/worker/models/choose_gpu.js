// Decides whether a session in the worker uses the GPU.

import { NoAdapter } from '../../common/errors.js';
import { warn, warnOnce } from '../../common/log.js';
import { acquireGpu, whyNoGpu } from '../../gpu/device.js';

/** @import { CreateParams } from '../../common/protocol.js' */
/** @import { Gpu } from '../../gpu/device.js' */
/**
 * whyNot: why the session names the GPU and does not use it, or ""; candidate: the GPU that the provider "auto" measures.
 * @typedef {{ gpu: Gpu | null, whyNot: string, candidate?: Gpu }} Choice
 */

const HINT = "name 'webgpu' alone, or { name: 'webgpu', allowSoftware: true }, to use it";

/**
 * The GPU, if the session names it before WebAssembly, which can run all kernels. An adapter that computes on the CPU counts only
 * if the session allows it or does not name WebAssembly. None for a session on the page's GPU.
 * @param {Pick<CreateParams, 'options' | 'allowsSoftware' | 'isAuto' | 'fallback' | 'limits' | 'logOptions' | 'gpu'>} params @returns {Promise<Choice>}
 */
export async function gpuFor({ options: { executionProviders: asked = [] }, allowsSoftware, isAuto, fallback = true, limits, logOptions, gpu: pages }) {
  if (pages || !asked.slice(0, asked.indexOf('wasm') >>> 0).includes('webgpu')) return { gpu: null, whyNot: '' };
  const hasWasm = asked.includes('wasm');
  const gpu = await acquireGpu(limits.gpuTimeout);
  if (gpu && (!gpu.adapter.software || !hasWasm || allowsSoftware)) {
    return isAuto ? { gpu: null, whyNot: '', candidate: gpu } : { gpu, whyNot: '' };
  }
  const whyNot = gpu ? `the WebGPU adapter "${gpu.adapter.name}" computes on the CPU` : whyNoGpu;
  const hint = hasWasm ? 'fallback is off' : "ask for ['webgpu', 'wasm'] to run without one";
  if (!hasWasm || !gpu && !fallback && !isAuto) throw new NoAdapter(whyNot, { hint });
  if (isAuto) return { gpu: null, whyNot: `auto: ${whyNot}` };
  if (gpu) warnOnce(`${whyNot}; sessions run on WebAssembly (${HINT})`, logOptions);
  else warn(`${whyNot}; the session runs on WebAssembly`, logOptions);
  return { gpu: null, whyNot };
}
