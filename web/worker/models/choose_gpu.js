// Decides whether a session in the worker uses the GPU.

import { NoAdapter } from '../../common/errors.js';
import { warn, warnOnce } from '../../common/log.js';
import { acquireGpu } from '../../gpu/device.js';

/** @import { CreateParams } from '../../common/protocol.js' */
/**
 * whyNot: why the session names the GPU and does not use it, or "".
 * @typedef {{ gpu: import('../../gpu/device.js').Gpu | null, whyNot: string }} Choice
 */

const HINT = "name 'webgpu' alone, or { name: 'webgpu', allowSoftware: true }, to use it";

/**
 * The GPU, if the session names it before WebAssembly, which can run all kernels. An adapter that computes on the CPU counts only
 * if the session allows it or does not name WebAssembly.
 * @param {Pick<CreateParams, 'options' | 'allowsSoftware' | 'logOptions'>} params @returns {Promise<Choice>}
 */
export async function gpuFor({ options: { executionProviders: asked = [] }, allowsSoftware, logOptions }) {
  if (!asked.slice(0, asked.indexOf('wasm') >>> 0).includes('webgpu')) return { gpu: null, whyNot: '' };
  const hasWasm = asked.includes('wasm');
  const gpu = await acquireGpu();
  if (gpu && (!gpu.adapter.software || !hasWasm || allowsSoftware)) return { gpu, whyNot: '' };
  const whyNot = gpu ? `the WebGPU adapter "${gpu.adapter.name}" computes on the CPU` : 'this browser has no WebGPU adapter';
  if (!hasWasm) throw new NoAdapter(whyNot, { hint: "ask for ['webgpu', 'wasm'] to run without one" });
  if (gpu) warnOnce(`${whyNot}; sessions run on WebAssembly (${HINT})`, logOptions);
  else warn(`${whyNot}; the session runs on WebAssembly`, logOptions);
  return { gpu: null, whyNot };
}
