// The page's GPU: `env.webgpu.device` and `env.webgpu.adapter`, which pages read and set. A session runs on it if the page uses it, or
// wants outputs in its buffers; other sessions use the worker's GPU (docs/design/gpu.md#gpu-of-the-page).

import { env } from 'onnxruntime-common';
import { InvalidInput, NoAdapter } from '../../common/errors.js';
import { setting } from '../../gpu/setting.js';
import { executorCode, loadedExecutorCode } from '../executor/load_code.js';
import { adapterOptions, isDevice } from '../options/adapter.js';
import { GPU_TIMEOUT } from '../options/engine_options.js';

/** @import { Gpu } from '../../gpu/device.js' */

setting.exclusive = false; // the page's own code may use the device, too

/** Whether the page has a device. */
let hasDevice = false;
/**
 * The value of env.webgpu.adapter: the adapter of the page's device, or one with the options of the worker's.
 * @type {GPUAdapter | null}
 */
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
    set(value) {
      if (value && typeof value.requestDevice !== 'function') {
        throw new InvalidInput('env.webgpu.adapter cannot be set to this', { hint: 'a GPUAdapter' });
      }
      setting.adapter = value ?? null;
    },
  },
});

/** Whether sessions with a GPU run in the page. */
export const hasPageGpu = () => hasDevice || Boolean(setting.device ?? setting.adapter);

/** @param {GPUDevice} [device] of a session @param {string} [preset] of it @param {number} [seconds] its gpuTimeout @returns {Promise<Gpu>} */
export async function pageGpu(device, preset, seconds = GPU_TIMEOUT) {
  const code = await executorCode();
  if (device) return code.gpuOf(device);
  Object.assign(setting.adapterOptions, adapterOptions(preset));
  const gpu = await code.acquireGpu(seconds);
  if (!gpu) throw new NoAdapter(code.whyNoGpu, { hint: "ask for ['webgpu', 'wasm'] to run without one" });
  hasDevice = true;
  adapter = gpu.source;
  return gpu;
}

/** The number and the bytes of sessions' tensors on the page's GPU. */
export async function pageTensors() {
  const gpu = await (await loadedExecutorCode())?.currentGpu();
  return { tensors: gpu?.tensors.live.size ?? 0, tensorBytes: gpu?.tensors.size ?? 0 };
}

/** Sets `env.webgpu.adapter` for pages that read it after a session was created in the worker. @param {number | undefined} seconds to wait */
export async function noteAdapter(seconds) {
  if (adapter || !navigator.gpu) return;
  const asked = navigator.gpu.requestAdapter({ ...setting.adapterOptions, ...adapterOptions() }).then((found) => { adapter ??= found; }, () => {});
  await Promise.race([asked, new Promise((resolve) => setTimeout(resolve, 1000 * (seconds ?? GPU_TIMEOUT)))]);
}
