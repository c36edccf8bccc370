// The page's GPU: `env.webgpu.device` and `env.webgpu.adapter`, which pages read and give. A session runs on it where the
// page has it, or has its outputs left in buffers; the others use the worker's (docs/design/gpu.md#gpu-of-the-page).

import { env } from 'onnxruntime-common';
import { InvalidInput, NoAdapter } from '../../common/errors.js';
import { setting } from '../../gpu/setting.js';
import { gpuCode, loadedGpuCode } from './load_code.js';
import { adapterOptions, isDevice } from '../options/adapter.js';

/** @typedef {import('../../gpu/device.js').Gpu} Gpu */

setting.alone = false; // the page's code may use the device, too

/** Whether the page has asked for the device, or given it. */
let wanted = false;
/** For who reads it: of the device, or of sessions in the worker. @type {GPUAdapter | null} */
let adapter = null;

Object.defineProperties(env.webgpu, {
  device: {
    configurable: true,
    enumerable: true,
    get: async () => (await pageGpu()).device,
    set(device) {
      if (device && !isDevice(device)) throw new InvalidInput('env.webgpu.device cannot be set to this', { hint: 'a GPUDevice' });
      setting.device = device ?? null;
    },
  },
  adapter: {
    configurable: true,
    enumerable: true,
    get: () => setting.adapter ?? adapter ?? undefined,
    set(given) {
      if (given && typeof given.requestDevice !== 'function') throw new InvalidInput('env.webgpu.adapter cannot be set to this', { hint: 'a GPUAdapter' });
      setting.adapter = given ?? null;
    },
  },
});

/** Whether sessions on the GPU are to run in the page. */
export const hasPageGpu = () => wanted || Boolean(setting.device ?? setting.adapter);

/** @param {GPUDevice} [device] of a session @param {string} [preset] of it @returns {Promise<Gpu>} */
export async function pageGpu(device, preset) {
  const { acquireGpu, gpuOf } = await gpuCode();
  if (device) return gpuOf(device);
  Object.assign(setting.wishes, adapterOptions(preset));
  const gpu = await acquireGpu();
  if (!gpu) throw new NoAdapter('this browser gives no WebGPU adapter', { hint: "ask for ['webgpu', 'wasm'] to run without one" });
  wanted = true;
  adapter = gpu.source;
  return gpu;
}

/** Tensors that sessions left on it. */
export async function pageTensors() {
  const gpu = await (await loadedGpuCode())?.currentGpu();
  return gpu?.tensors.live.size ?? 0;
}

/** For who reads `env.webgpu.adapter` after a session was created in the worker. */
export async function noteAdapter() {
  adapter ??= (await navigator.gpu?.requestAdapter({ ...setting.wishes, ...adapterOptions() }).catch(() => null)) ?? null;
}
