// Whether this browser has a GPU for WebGPU. A software adapter computes on the CPU, more slowly than WebAssembly.

/** Adapters that compute on the CPU, by their names; newer browsers have `isFallbackAdapter`. */
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|softpipe|warp|basic render/i;

/** @typedef {{ kind: 'gpu' | 'software' | 'none', name: string }} Found */

/** @param {Pick<GPUAdapterInfo, 'vendor' | 'architecture' | 'device' | 'description'>} info */
export const nameOf = ({ vendor, architecture, device, description }) => [vendor, architecture, device, description].filter(Boolean).join(' ');

/** @returns {Promise<Found>} */
export async function findGpu() {
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  if (!adapter) return { kind: 'none', name: '' };
  const name = nameOf(adapter.info);
  const isSoftware = adapter.info.isFallbackAdapter || /** @type {any} */ (adapter).isFallbackAdapter || SOFTWARE.test(name);
  return { kind: isSoftware ? 'software' : 'gpu', name };
}

/** What a visitor should know about the GPU; "" for a real one. @param {Found} found */
export function aboutGpu({ kind, name }) {
  if (kind === 'none') return 'This browser has no WebGPU, so models run on WebAssembly.';
  return kind === 'gpu' ? '' : `This browser's WebGPU adapter (${name}) is software and computes on the CPU, so WebAssembly is faster.`;
}
