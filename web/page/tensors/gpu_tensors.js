// Tensors of onnxruntime-common in buffers of the page's GPU.

import { Tensor } from 'onnxruntime-common';
import { dropped } from '../../common/dropped.js';
import { InvalidInput } from '../../common/errors.js';

/** @import { WireTensor } from '../../common/protocol.js' */
/** @import { Gpu } from '../../gpu/device.js' */

/** The GPU of each output's buffer. @type {WeakMap<GPUBuffer, Gpu>} */
const outputs = new WeakMap();

/** @type {WeakMap<Tensor, GPUBuffer>} */
const buffers = new WeakMap();
/** Buffers that the page has read. @type {WeakSet<GPUBuffer>} */
const known = new WeakSet();
const read = /** @type {() => GPUBuffer} */ (Object.getOwnPropertyDescriptor(Tensor.prototype, 'gpuBuffer')?.get);

/** Tensors that the page dropped. */
export const droppedTensors = dropped('GPU tensor', 'dispose', (/** @type {{ buffer: GPUBuffer, gpu: Gpu }} */ { buffer, gpu }) => {
  if (known.has(buffer)) gpu.tensors.giveAway(buffer);
  else gpu.tensors.dispose(buffer);
});

/** The tensor of an output on the GPU. @param {WireTensor} wire @param {GPUBuffer} buffer @param {Gpu} gpu @returns {Tensor} */
export function onGpu(wire, buffer, gpu) {
  const options = {
    dataType: wire.type,
    dims: wire.dims,
    download: async () => (await gpu.tensors.download(wire)).data,
    dispose: () => {
      droppedTensors.registry.unregister(buffer);
      gpu.tensors.dispose(buffer);
    },
  };
  outputs.set(buffer, gpu);
  const tensor = Tensor.fromGpuBuffer(buffer, /** @type {any} */ (options));
  buffers.set(tensor, buffer);
  known.delete(buffer);
  Object.defineProperty(tensor, 'gpuBuffer', {
    configurable: true,
    get() {
      known.add(buffer);
      return read.call(this);
    },
  });
  droppedTensors.registry.register(tensor, { buffer, gpu }, buffer);
  return tensor;
}

/** @param {Tensor} tensor whose location is 'gpu-buffer' @returns {WireTensor} */
export const wireOf = (tensor) => ({ type: tensor.type, dims: tensor.dims, data: { gpu: bufferOf(tensor) } });

/** @param {Tensor} tensor */
const bufferOf = (tensor) => buffers.get(tensor) ?? /** @type {GPUBuffer} */ (tensor.gpuBuffer);

/** @param {unknown} value a feed, or a tensor to fill */
const inBuffer = (value) => /** @type {Tensor | null} */ (value)?.location === 'gpu-buffer';

/** Whether a run reads or fills tensors in buffers of the page's GPU. @param {Record<string, unknown>} values */
export const hasBuffers = (values) => Object.values(values).flat().some(inBuffer);

/**
 * For a session without a GPU: downloads feeds that are outputs of other sessions. A buffer of the page itself is an error.
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

/** Downloads a feed to a new tensor; the feed itself stays on the GPU. @param {string} name @param {Tensor} tensor @param {string} hint */
async function downloaded(name, tensor, hint) {
  const gpu = outputs.get(bufferOf(tensor));
  if (!gpu) {
    throw new InvalidInput(`input "${name}" lies in a GPUBuffer, and the session has no GPU`, { hint: `feed its data, or ${hint}` });
  }
  const { data } = await gpu.tensors.download(wireOf(tensor));
  return new Tensor(/** @type {any} */ (tensor.type), /** @type {any} */ (data), tensor.dims);
}
