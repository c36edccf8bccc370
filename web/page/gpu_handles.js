// Tensors on the GPU as the page sees them: numbers of tensors in the worker, since a GPUBuffer cannot be sent there.

import { Tensor } from 'onnxruntime-common';
import { InvalidInput } from '../common/errors.js';

/** @typedef {import('../common/protocol.js').Caller} Caller */

/** @type {WeakMap<Tensor, { id: number, caller: Caller }>} */
const handles = new WeakMap();

/**
 * @param {number} id @param {string} type @param {readonly number[]} dims @param {Caller} caller
 * @returns {Tensor}
 */
export function onGpu(id, type, dims, caller) {
  const options = {
    dataType: type,
    dims,
    download: async () => (await caller.call('download', { tensor: id })).data,
    dispose: () => void caller.call('dispose', { tensor: id }).catch(() => {}),
  };
  const tensor = Tensor.fromGpuBuffer(/** @type {any} */ ({}), /** @type {any} */ (options));
  handles.set(tensor, { id, caller });
  Object.defineProperty(tensor, 'gpuBuffer', {
    get() {
      throw new InvalidInput('this tensor lies on the GPU of the engine\'s worker, and a GPUBuffer cannot leave its worker', { hint: 'feed the tensor back, or read it with getData()' });
    },
  });
  return tensor;
}

/** @param {string} name @param {Tensor} tensor @param {Caller} caller of the session it is fed to @returns {number} */
export function gpuNumber(name, tensor, caller) {
  const handle = handles.get(tensor);
  if (!handle) {
    throw new InvalidInput(`"${name}" lies in a GPUBuffer of the page, which cannot be sent to the engine's worker`, { hint: 'feed its data, or a tensor that a run left on the GPU' });
  }
  if (handle.caller !== caller) throw new InvalidInput(`"${name}" lies on the GPU of a worker that is gone`);
  return handle.id;
}
