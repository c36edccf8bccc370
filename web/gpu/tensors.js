// Tensors that stay on the GPU between runs. The page holds their numbers: buffers cannot leave the worker.

import { elementSize, load } from '../common/elements.js';
import { DeviceLost, InvalidInput } from '../common/errors.js';
import { USAGE } from './flags.js';
import { fromGpuStorage } from './storage.js';

/** @typedef {import('../common/protocol.js').WireTensor} WireTensor */
/** @typedef {{ id: number, dtype: string, dims: number[], size: number, buffer: GPUBuffer }} GpuTensor size: bytes as stored */

const POOL = 64 << 20; // bytes of disposed tensors kept for new ones

let next = 1;

/** Element types that onnxruntime's tensors of a GPU may have. */
export const GPU_TYPES = new Set(['float32', 'float16', 'int32', 'int64', 'uint32', 'uint8', 'bool', 'uint4', 'int4']);

/** Those of a device. */
export class GpuTensors {
  /** @param {import('./device.js').Gpu} gpu */
  constructor(gpu) {
    this.gpu = gpu;
    /** @type {Map<number, GpuTensor>} */
    this.live = new Map();
    /** @type {GPUBuffer[]} */
    this.pool = [];
  }

  /** @param {string} dtype @param {number[]} dims @returns {GpuTensor} its contents are to be written */
  create(dtype, dims) {
    const size = dims.reduce((product, dim) => product * dim, 1) * Math.min(4, elementSize(dtype));
    const wanted = sizeClass(size);
    const fit = this.pool.findIndex((buffer) => buffer.size === wanted);
    const usage = USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST;
    const buffer = fit >= 0 ? this.pool.splice(fit, 1)[0]
      : this.gpu.catchErrors(() => this.gpu.device.createBuffer({ size: wanted, usage, label: 'tensor' }));
    const tensor = { id: next++, dtype, dims, size, buffer };
    this.live.set(tensor.id, tensor);
    return tensor;
  }

  /** @param {number} id @returns {GpuTensor} */
  find(id) {
    const tensor = this.live.get(id);
    if (tensor) return tensor;
    throw new DeviceLost('this GPU tensor is gone: it was disposed, or its device was lost', { hint: 'keep a copy with getData()' });
  }

  /** A tensor to be filled, which must be as the result is. @param {number} id @param {string} dtype @param {number[]} dims @returns {GpuTensor} */
  target(id, dtype, dims) {
    const tensor = this.find(id);
    if (tensor.dtype !== dtype || tensor.dims.join() !== dims.join()) {
      throw new InvalidInput(`the output is ${dtype} [${dims.join(', ')}], the tensor given for it ${tensor.dtype} [${tensor.dims.join(', ')}]`);
    }
    return tensor;
  }

  /** Its elements as they are in linear memory; waits for the GPU. @param {GpuTensor} tensor @returns {Promise<Uint8Array>} */
  async bytes({ dtype, size, buffer }) {
    if (!size) return new Uint8Array(0);
    const whole = Math.ceil(size / 4) * 4;
    let bytes = new Uint8Array(0);
    const copy = (/** @type {GPUBuffer} */ staging) => {
      const encoder = this.gpu.device.createCommandEncoder();
      encoder.copyBufferToBuffer(buffer, 0, staging, 0, whole);
      this.gpu.device.queue.submit([encoder.finish()]);
    };
    await this.gpu.read(whole, copy, (found) => {
      bytes = new Uint8Array((size / Math.min(4, elementSize(dtype))) * elementSize(dtype));
      fromGpuStorage(new Uint8Array(found, 0, size), dtype, bytes);
    });
    return bytes;
  }

  /** @param {number} id @returns {Promise<WireTensor>} */
  async download(id) {
    const tensor = this.find(id);
    return load(await this.bytes(tensor), tensor.dtype, tensor.dims, null);
  }

  /** Nothing for one that is gone. @param {number} id */
  dispose(id) {
    const tensor = this.live.get(id);
    if (!tensor) return;
    this.live.delete(id);
    this.pool.push(tensor.buffer);
    while (this.pool.reduce((sum, { size }) => sum + size, 0) > POOL) this.pool.shift()?.destroy();
  }

  freePool() {
    for (const buffer of this.pool.splice(0)) buffer.destroy();
  }

  /** Bytes of the tensors that are alive. */
  get size() {
    return [...this.live.values()].reduce((sum, { buffer }) => sum + buffer.size, 0);
  }
}

/** What crosses to the page in place of data. @param {GpuTensor} tensor @returns {WireTensor} */
export const wireOf = ({ id, dtype, dims }) => ({ type: dtype, dims, data: { gpu: id } });

/** Sizes that are used again more often: the next power of two, or of the larger ones a multiple of a MiB. @param {number} size */
export const sizeClass = (size) => (size <= 1 << 20 ? 2 ** Math.ceil(Math.log2(Math.max(size, 256))) : Math.ceil(size / (1 << 20)) * (1 << 20));
