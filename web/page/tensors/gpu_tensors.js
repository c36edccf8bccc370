// Tensors of onnxruntime-common in buffers of the page's GPU.

import { Tensor } from 'onnxruntime-common';
import { dropped } from '../../common/dropped.js';
import { InvalidInput } from '../../common/errors.js';
import { NewTensor } from './new_tensor.js';

/** @import { InBuffer, WireTensor } from '../../common/protocol.js' */
/** @import { Gpu } from '../../gpu/device.js' */
/** @typedef {import('../../gpu/rooms.js').Rooms} Rooms */
/**
 * Where an output is: a buffer of its own, or one that it shares until the page reads `gpuBuffer`. check: whether a run had
 * overwritten it by then. @typedef {{ data: InBuffer, gpu: Gpu, check?: Promise<void> }} Held
 */

/** The GPU of each output's buffer. @type {WeakMap<GPUBuffer, Gpu>} */
const outputs = new WeakMap();

/** @type {WeakMap<Tensor, Held>} */
const places = new WeakMap();
/** Buffers that the page has read. @type {WeakSet<GPUBuffer>} */
const known = new WeakSet();
const read = /** @type {() => GPUBuffer} */ (Object.getOwnPropertyDescriptor(Tensor.prototype, 'gpuBuffer')?.get);

/** Tensors that the page dropped. */
export const droppedTensors = dropped('GPU tensor', 'dispose', (/** @type {Held} */ { data, gpu }) => {
  if (known.has(data.gpu)) gpu.tensors.giveAway(data.gpu);
  else gpu.tensors.dispose(data.gpu, data.room);
});

/** The tensor of an output on the GPU. @param {WireTensor} wire @param {GPUBuffer} buffer @param {Gpu} gpu @returns {Tensor} */
export function onGpu(wire, buffer, gpu) {
  const held = /** @type {Held} */ ({ data: wire.data, gpu });
  const options = {
    dataType: wire.type,
    dims: wire.dims,
    download: async () => {
      await held.check;
      return (await gpu.tensors.download({ ...wire, data: held.data })).data;
    },
    dispose: () => {
      droppedTensors.registry.unregister(held);
      gpu.tensors.dispose(held.data.gpu, held.data.room);
    },
  };
  outputs.set(buffer, gpu);
  const tensor = Tensor.fromGpuBuffer(buffer, /** @type {Parameters<typeof Tensor.fromGpuBuffer>[1]} */ (options));
  places.set(tensor, held);
  known.delete(buffer);
  Object.defineProperty(tensor, 'gpuBuffer', {
    configurable: true,
    get() {
      read.call(this); // throws after dispose()
      if (held.data.room) held.check = /** @type {Rooms} */ (gpu.rooms).dense({ ...wire, data: held.data });
      known.add(held.data.gpu);
      outputs.set(held.data.gpu, gpu);
      return held.data.gpu;
    },
  });
  shareDownload(tensor);
  droppedTensors.registry.register(tensor, held, held);
  return tensor;
}

/** Calls of `getData` during a download get its data; onnxruntime-common refuses them. @param {Tensor} tensor */
function shareDownload(tensor) {
  const { getData } = tensor;
  /** @type {ReturnType<typeof getData> | null} */
  let download = null;
  const value = (/** @type {boolean} */ release) => download ??= getData.call(tensor, release).finally(() => { download = null; });
  Object.defineProperty(tensor, 'getData', { configurable: true, value });
}

/** @param {Tensor} tensor whose location is 'gpu-buffer' @returns {WireTensor} */
export const wireOf = (tensor) => ({ type: tensor.type, dims: tensor.dims, data: dataOf(tensor) });

/** @param {Tensor} tensor @returns {InBuffer} */
const dataOf = (tensor) => places.get(tensor)?.data ?? { gpu: /** @type {GPUBuffer} */ (tensor.gpuBuffer) };

/** @param {unknown} value a feed, or a tensor to fill */
const inBuffer = (value) => /** @type {Tensor | null} */ (value)?.location === 'gpu-buffer';

/** Whether a run reads or fills tensors in buffers of the page's GPU. @param {Record<string, unknown>} values */
export const hasBuffers = (values) => Object.values(values).flat().some(inBuffer);

/**
 * For a session without a GPU: downloads feeds that are outputs of other sessions. A buffer of the page itself is an error.
 * @param {Record<string, Tensor | Tensor[] | null>} feeds @param {Record<string, Tensor | null>} fetches
 * @returns {Promise<Record<string, Tensor | Tensor[] | null>>}
 */
export async function withoutBuffers(feeds, fetches) {
  const filled = Object.keys(fetches).find((name) => inBuffer(fetches[name]));
  const hint = "create the session with executionProviders: ['webgpu']";
  if (filled) throw new InvalidInput(`the tensor to fill for "${filled}" lies in a GPUBuffer, and the session has no GPU`, { hint });
  const entries = Object.entries(feeds).map(async ([name, feed]) => {
    const items = await Promise.all([feed].flat().map((item) => (item && inBuffer(item) ? downloaded(name, item, hint) : item)));
    return [name, Array.isArray(feed) ? items : items[0]];
  });
  return Object.fromEntries(await Promise.all(entries));
}

/** Downloads a feed to a new tensor; the feed itself stays on the GPU. @param {string} name @param {Tensor} tensor @param {string} hint */
async function downloaded(name, tensor, hint) {
  const gpu = outputs.get(dataOf(tensor).gpu);
  if (!gpu) {
    throw new InvalidInput(`input "${name}" lies in a GPUBuffer, and the session has no GPU`, { hint: `feed its data, or ${hint}` });
  }
  const { data } = await gpu.tensors.download(wireOf(tensor));
  return new NewTensor(tensor.type, /** @type {import('../../common/protocol.js').NumericData} */ (data), tensor.dims);
}
