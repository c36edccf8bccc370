// GPU tensors that sessions read and return: one GPUBuffer each, with elements in the layout of linear memory.

import { load } from '../common/elements.js';
import { InvalidInput } from '../common/errors.js';
import { budgets, checkLimit, hold } from '../run/budgets.js';
import { USAGE } from './flags.js';
import { bytesOf, sizeClass, wholeSize } from './sizes.js';
import { isWide } from './storage.js';

/** @import { WireTensor } from '../common/protocol.js' */
/** @import { GpuTensor } from './types.js' */
/** @typedef {'feed' | 'fill' | 'download'} Use */

const POOL = 64 << 20; // bytes of disposed tensors' buffers that are reused

/** Element types that onnxruntime allows for GPU tensors, except 4-bit types, which are not packed here. */
export const GPU_TYPES = new Set(['float32', 'float16', 'int32', 'int64', 'uint32', 'uint8', 'bool']);

/** Usages of which a buffer must have one. @type {Record<Use, (keyof typeof USAGE)[]>} */
const USES = { feed: ['COPY_SRC', 'STORAGE'], fill: ['COPY_DST', 'STORAGE'], download: ['COPY_SRC'] };
const WIDE_USES = { feed: USES.feed.slice(1), fill: USES.fill.slice(1), download: USES.download };

/** The tensors of a device. */
export class GpuTensors {
  /** @param {import('./types.js').Device & { moves: import('./moves.js').Moves, rooms: import('./types.js').SharedBuffers | null }} gpu */
  constructor(gpu) {
    this.gpu = gpu;
    /** Buffers of tensors that `create` made and that are not disposed of. @type {Set<GPUBuffer>} */
    this.live = new Set();
    /** @type {GPUBuffer[]} */
    this.pool = [];
    /** Source and target of the copies of `probe`. @type {GPUBuffer | null} */
    this.scratch = null;
  }

  /** A new tensor. @param {string} type @param {readonly number[]} dims @returns {GpuTensor} */
  create(type, dims) {
    return { type, dims, data: { gpu: this.allocate(bytesOf(type, dims)) } };
  }

  /** A buffer of at least this size, from the pool if it has one. @param {number} size */
  allocate(size) {
    const needed = sizeClass(size);
    const fit = this.pool.findIndex((buffer) => buffer.size === needed);
    const buffer = fit >= 0 ? this.pool.splice(fit, 1)[0] : this.counted(needed);
    this.live.add(buffer);
    return buffer;
  }

  /** A buffer that counts. @param {number} size */
  counted(size) {
    if (!budgets.gpu.fits(size)) this.freePool();
    checkLimit('gpu', size);
    const buffer = this.buffer(size);
    hold('gpu', size);
    return buffer;
  }

  /** @param {number} size */
  buffer(size) {
    const usage = USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST;
    return this.gpu.catchErrors(() => this.gpu.device.createBuffer({ size, usage, label: 'tensor' }));
  }

  /**
   * Refuses tensors whose buffers do not permit this use. Buffers of the page are tried with an empty command, because
   * no property shows that a buffer was destroyed or belongs to another device.
   * @param {[string, GpuTensor | WireTensor][]} named @param {Use} use
   */
  async check(named, use) {
    const all = /** @type {[string, GpuTensor][]} */ (named.filter(([, { data }]) => 'gpu' in data));
    for (const [name, tensor] of all) refuseShape(name, tensor, use);
    await Promise.all(all.filter(([, { data }]) => !this.live.has(data.gpu)).map(([name, { data }]) => this.probe(name, data.gpu)));
  }

  /** @param {string} name @param {GPUBuffer} buffer */
  async probe(name, buffer) {
    const { device } = this.gpu;
    this.scratch ??= this.buffer(512);
    const { scratch } = this;
    const bindOnly = !(buffer.usage & (USAGE.COPY_SRC | USAGE.COPY_DST));
    if (bindOnly) await this.gpu.moves.compile('copy');
    device.pushErrorScope('validation');
    const encoder = device.createCommandEncoder();
    if (bindOnly) this.gpu.moves.touch(encoder, buffer, scratch);
    else if (buffer.usage & USAGE.COPY_SRC) encoder.copyBufferToBuffer(buffer, 0, scratch, 0, 0);
    else encoder.copyBufferToBuffer(scratch, 0, buffer, 0, 0);
    device.queue.submit([encoder.finish()]);
    const error = await device.popErrorScope().catch(() => null);
    this.gpu.throwIfLost();
    if (!error) return;
    if (/destroyed/.test(error.message)) throw new InvalidInput(`the GPUBuffer of ${name} was destroyed`);
    const hint = "create it on the session's device: await ort.env.webgpu.device, or the GPUDevice that you set";
    throw new InvalidInput(`the GPUBuffer of ${name} belongs to another GPUDevice or is not valid: ${error.message}`, { hint });
  }

  /** Waits for the GPU and copies a tensor to the CPU. @param {GpuTensor | WireTensor} tensor @returns {Promise<WireTensor>} */
  async download({ type, dims, data }) {
    const { gpu: buffer, room } = /** @type {GpuTensor['data']} */ (data);
    if (room) return /** @type {NonNullable<typeof this.gpu.rooms>} */ (this.gpu.rooms).download(/** @type {GpuTensor} */ ({ type, dims, data }));
    const size = bytesOf(type, dims);
    const found = new Uint8Array(size);
    const whole = wholeSize(type, dims);
    const copy = (/** @type {GPUBuffer} */ staging) => {
      const encoder = this.gpu.device.createCommandEncoder();
      encoder.copyBufferToBuffer(buffer, 0, staging, 0, whole);
      this.gpu.submit(encoder);
    };
    if (size) await this.gpu.read(whole, copy, (bytes) => found.set(new Uint8Array(bytes, 0, size)));
    return load(found, type, [...dims], null);
  }

  /**
   * Puts the buffer of a live tensor into the pool, unless another tensor shares it.
   * @param {GPUBuffer} buffer @param {import('../common/protocol.js').SharedRoom} [room] of a tensor that shares it
   */
  dispose(buffer, room) {
    if (room && !this.gpu.rooms?.leave(buffer, room)) return;
    if (!this.live.delete(buffer)) return;
    this.pool.push(buffer);
    while (this.pool.reduce((sum, { size }) => sum + size, 0) > POOL) this.destroy(this.pool.splice(0, 1));
  }

  /**
   * A tensor is gone, but the page read its `gpuBuffer` and may still use it: the browser frees the buffer when the page has dropped
   * that, too. @param {GPUBuffer} buffer
   */
  giveAway(buffer) {
    if (this.live.delete(buffer)) hold('gpu', -buffer.size);
  }

  /** The device is lost, and all memory with it. */
  lose() {
    hold('gpu', -[...this.live, ...this.pool].reduce((sum, { size }) => sum + size, 0));
    this.live.clear();
    this.gpu.rooms?.shared.clear();
    this.pool = [];
  }

  freePool() {
    this.destroy(this.pool.splice(0));
    this.scratch = null; // it may be invalid if memory was full
  }

  /** @param {GPUBuffer[]} buffers of disposed tensors */
  destroy(buffers) {
    for (const buffer of buffers) {
      hold('gpu', -buffer.size);
      buffer.destroy();
    }
  }

  /** Bytes of live tensors. */
  get size() {
    return [...this.live].reduce((sum, { size }) => sum + size, 0);
  }
}

/** @param {string} name @param {GpuTensor} tensor @param {Use} use */
function refuseShape(name, { type, dims, data: { gpu: buffer } }, use) {
  if (typeof GPUBuffer === 'undefined' || !(buffer instanceof GPUBuffer)) {
    throw new InvalidInput(`the gpuBuffer of ${name} is not a GPUBuffer`);
  }
  if (!GPU_TYPES.has(type)) {
    const hint = `pass its data on the CPU, or use one of ${[...GPU_TYPES].join(', ')}`;
    throw new InvalidInput(`${name} of type ${type} cannot be in a GPUBuffer`, { hint });
  }
  const needed = wholeSize(type, dims);
  if (buffer.size < needed) {
    const hint = 'round its size up to a multiple of 4 bytes';
    throw new InvalidInput(`${name}, ${type} [${dims.join(', ')}], needs ${needed} bytes, its GPUBuffer has ${buffer.size}`, { hint });
  }
  if (buffer.mapState !== 'unmapped') {
    throw new InvalidInput(`the GPUBuffer of ${name} is mapped`, { hint: 'unmap() it before the run' });
  }
  const usages = (isWide(type) ? WIDE_USES : USES)[use];
  if (usages.some((usage) => buffer.usage & USAGE[usage])) return;
  const hint = 'GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST';
  throw new InvalidInput(`the GPUBuffer of ${name} lacks the usage ${usages.join(' or ')}`, { hint });
}
