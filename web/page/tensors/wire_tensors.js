// Tensors to the wire and back.

import { Tensor } from 'onnxruntime-common';
import { InvalidInput } from '../../common/errors.js';
import { onGpu } from './gpu_tensors.js';
import { RAW } from './check_feeds.js';
import { joinRows } from './appended_rows.js';
import { hasSharedMemory } from '../../common/shared_memory.js';
import { mapTensors, mapValues } from '../../common/records.js';

/** @typedef {import('../../common/protocol.js').WireTensor} WireTensor */
/** @typedef {import('../../common/protocol.js').NumericData} NumericData */

const NOTHING = new Uint8Array(0); // one for all: each is cloned

/**
 * Shared buffers that carry feeds to the worker, used again run after run. Empty when the page is not isolated.
 */
export class SharedPool {
  constructor() {
    /** @type {SharedArrayBuffer[]} */
    this.free = [];
  }

  /** A new one has room for feeds that grow. @param {number} size @returns {SharedArrayBuffer} */
  take(size) {
    const fit = this.free.findIndex((buffer) => buffer.byteLength >= size && buffer.byteLength <= 4 * size + 4096);
    return fit < 0 ? new SharedArrayBuffer(Math.max(64, size + Math.floor(size / 8))) : this.free.splice(fit, 1)[0];
  }

  /** @param {SharedArrayBuffer[]} buffers of one run */
  give(buffers) {
    this.free.push(...buffers);
    this.free.splice(0, this.free.length - Math.max(16, buffers.length));
  }
}

/**
 * Copies of feeds on the CPU, for a run that waits.
 * @template {Record<string, Tensor | Tensor[] | null>} F @param {F} feeds @returns {F}
 */
export const snapshot = (feeds) => /** @type {F} */ (mapTensors(feeds, copied));

/** @param {Tensor} tensor */
function copied(tensor) {
  if (tensor.location !== 'cpu') return tensor;
  const { type, dims, data } = tensor;
  return new Tensor(/** @type {any} */ (type), Array.isArray(data) ? [...data] : /** @type {any} */ (copyOf(/** @type {NumericData} */ (data))), [...dims]);
}

/**
 * What a run sends: the tensors, buffers that move, and pool buffers to give back after it.
 */
export class Packer {
  /** @param {SharedPool} pool @param {import('./cached_outputs.js').Leases | null} [leases] feeds to send by id, without data */
  constructor(pool, leases = null) {
    this.pool = pool;
    this.leases = leases?.byTensor.size ? leases : null;
    /** @type {Transferable[]} */
    this.transfer = [];
    /** @type {SharedArrayBuffer[]} */
    this.borrowed = [];
  }

  /**
   * @param {Record<string, Tensor | Tensor[] | null>} feeds
   * @returns {Record<string, import('../../common/protocol.js').WireValue>}
   */
  packAll(feeds) {
    return mapTensors(feeds, (tensor) => this.pack(tensor));
  }

  /**
   * The packed feeds with all data, as they were when they were packed: the caller may have changed its tensors.
   * @param {Record<string, import('../../common/protocol.js').WireValue>} wire
   */
  withData(wire) {
    return mapValues(wire, (value) => {
      const entry = value && 'held' in value && this.leases?.byId.get(Number(value.held));
      if (!entry) return value;
      const data = joinRows(entry.rows);
      return { type: value.type, dims: value.dims, data: hasSharedMemory() ? this.share(data) : data };
    });
  }

  /**
   * The caller's buffer is never detached: shared data goes as it is, other data as one copy.
   * @param {Tensor} tensor
   * @returns {WireTensor}
   */
  pack(tensor) {
    const { type } = tensor;
    const dims = [...tensor.dims];
    const known = this.leases?.byTensor.get(tensor);
    if (known) return { type, dims, data: NOTHING, held: known.id };
    const data = /** @type {NumericData | string[]} */ (tensor.data);
    if (Array.isArray(data)) return { type, dims, data: [...data] };
    if (isShared(data)) return { type, dims, data };
    return { type, dims, data: hasSharedMemory() ? this.share(data) : this.copy(data) };
  }

  /** @param {NumericData} data @returns {NumericData} */
  share(data) {
    const buffer = this.pool.take(data.byteLength);
    this.borrowed.push(buffer);
    const view = new (classOf(data))(buffer, 0, data.length);
    view.set(data);
    return view;
  }

  /** What may be sent once more stays here. @param {NumericData} data @returns {NumericData} */
  copy(data) {
    const copy = copyOf(data);
    if (!this.leases) this.transfer.push(/** @type {ArrayBuffer} */ (copy.buffer));
    return copy;
  }
}

/** A preallocated output crosses only where the worker can write into it. @param {Tensor} tensor @returns {WireTensor | null} */
export function packTarget({ type, dims, data }) {
  const numeric = /** @type {NumericData} */ (data);
  return !Array.isArray(data) && isShared(numeric) ? { type, dims, data: numeric } : null;
}

/** @param {NumericData} data @returns {boolean} */
export function isShared(data) {
  return typeof SharedArrayBuffer !== 'undefined' && data.buffer instanceof SharedArrayBuffer;
}

/** Its typed array, of which a Buffer of Node.js is a kind. @param {NumericData} data @returns {any} */
const classOf = (data) => /** @type {any} */ (globalThis)[data[Symbol.toStringTag]];

/** Not by .slice(), which gives a view of a Buffer of Node.js. @param {NumericData} data @returns {NumericData} */
export const copyOf = (data) => new (classOf(data))(data);

/**
 * @param {string} name
 * @param {import('../../common/protocol.js').WireValue} wire
 * @param {Tensor | null} into
 * @param {import('../../gpu/device.js').Gpu | null} gpu of the page, where the session runs on it
 * @returns {Tensor | Tensor[] | null}
 */
export function unpackValue(name, wire, into, gpu) {
  if (!wire) return null;
  if (into && !Array.isArray(wire)) checkTarget(name, wire, into);
  return Array.isArray(wire) ? wire.map((item) => unpack(item, null, gpu)) : unpack(wire, into, gpu);
}

/** Dims of outputs are known after the run. @param {string} name @param {WireTensor} wire @param {Tensor} into */
function checkTarget(name, { type, dims }, into) {
  const [made, given] = [`${RAW[type] ?? type} [${dims.join(', ')}]`, `${into.type} [${into.dims.join(', ')}]`];
  if (made !== given) throw new InvalidInput(`output "${name}" is ${made}, the tensor to fill is ${given}`);
}

/**
 * The result tensor; a preallocated one is filled and returned itself.
 * @param {WireTensor} wire
 * @param {Tensor | null} into
 * @param {import('../../gpu/device.js').Gpu | null} gpu
 * @returns {Tensor}
 */
function unpack({ type, dims, data }, into, gpu) {
  if ('gpu' in data) return into ?? onGpu({ type, dims, data }, data.gpu, /** @type {import('../../gpu/device.js').Gpu} */ (gpu));
  if (into?.location === 'gpu-buffer') throw new InvalidInput(`a tensor on the GPU cannot hold this output of type ${type}`, { hint: 'the session runs on WebAssembly, or the GPU has no such type' });
  if (!into) return new Tensor(/** @type {any} */ (RAW[type] ?? type), /** @type {any} */ (data), dims);
  const target = /** @type {any} */ (into.data);
  if (target === data || (!Array.isArray(data) && isShared(/** @type {NumericData} */ (target)))) return into;
  if (Array.isArray(data)) for (const [i, text] of data.entries()) target[i] = text;
  else target.set(data);
  return into;
}
