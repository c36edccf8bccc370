// Tensors in buffers of the page's GPU, as onnxruntime-common dresses them.

import { Tensor } from 'onnxruntime-common';
import { InvalidInput } from '../../common/errors.js';

/** @typedef {import('../../common/protocol.js').WireTensor} WireTensor */
/** @typedef {import('../../gpu/device.js').Gpu} Gpu */

/** Buffers that runs left, and where. @type {WeakMap<GPUBuffer, Gpu>} */
const left = new WeakMap();

/** What a run left on the GPU. @param {WireTensor} made @param {GPUBuffer} buffer @param {Gpu} gpu @returns {Tensor} */
export function onGpu(made, buffer, gpu) {
  const options = {
    dataType: made.type,
    dims: made.dims,
    download: async () => (await gpu.tensors.download(made)).data,
    dispose: () => gpu.tensors.dispose(buffer),
  };
  left.set(buffer, gpu);
  return Tensor.fromGpuBuffer(buffer, /** @type {any} */ (options));
}

/** @param {Tensor} tensor whose location is 'gpu-buffer' @returns {WireTensor} */
export const wireOf = ({ type, dims, gpuBuffer }) => ({ type, dims, data: { gpu: /** @type {GPUBuffer} */ (gpuBuffer) } });

/** @param {unknown} value a feed, or a tensor to fill */
const inBuffer = (value) => /** @type {Tensor | null} */ (value)?.location === 'gpu-buffer';

/** Whether a run takes or fills tensors in the page's buffers. @param {Record<string, unknown>} values */
export const hasBuffers = (values) => Object.values(values).flat().some(inBuffer);

/**
 * For a session without a GPU: the data of feeds that other sessions left there. A buffer of the page itself has none.
 * @template {Record<string, any>} T @param {T} feeds @param {Record<string, Tensor | null>} fetches @returns {Promise<T>}
 */
export async function withoutBuffers(feeds, fetches) {
  const filled = Object.keys(fetches).find((name) => inBuffer(fetches[name]));
  const hint = "create the session with executionProviders: ['webgpu']";
  if (filled) throw new InvalidInput(`the tensor to fill for "${filled}" lies in a GPUBuffer, and the session has no GPU`, { hint });
  const entries = Object.entries(feeds).map(async ([name, feed]) => {
    const items = await Promise.all([feed].flat().map((item) => (inBuffer(item) ? downloaded(name, item, hint) : item)));
    return [name, Array.isArray(feed) ? items : items[0]];
  });
  return Object.fromEntries(await Promise.all(entries));
}

/** A tensor of its own: the feed stays where it is. @param {string} name @param {Tensor} tensor @param {string} hint */
async function downloaded(name, tensor, hint) {
  const made = left.get(/** @type {GPUBuffer} */ (tensor.gpuBuffer));
  if (!made) throw new InvalidInput(`input "${name}" lies in a GPUBuffer, and the session has no GPU`, { hint: `feed its data, or ${hint}` });
  const { data } = await made.tensors.download(wireOf(tensor));
  return new Tensor(/** @type {any} */ (tensor.type), /** @type {any} */ (data), tensor.dims);
}
