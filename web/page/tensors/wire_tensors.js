// Converts tensors to messages for the worker, and back.

import { InvalidInput } from '../../common/errors.js';
import { onGpu } from './gpu_tensors.js';
import { RAW } from './check_feeds.js';
import { joinRows } from './appended_rows.js';
import { NewTensor } from './new_tensor.js';
import { arrayClass, fill, own } from '../../common/elements.js';
import { mapTensors, mapValues } from '../../common/records.js';

/** @import { NumericData, WireTensor } from '../../common/protocol.js' */
/** @import { Tensor } from 'onnxruntime-common' */

const NO_DATA = new Uint8Array(0);

/**
 * A pool of shared buffers for feeds. It stays empty without shared memory.
 */
export class SharedPool {
  constructor() {
    /** @type {SharedArrayBuffer[]} */
    this.free = [];
  }

  /**
   * Takes a buffer of this size or more; a new one has room for feeds that grow. Null if the browser refuses one.
   * @param {number} size @returns {SharedArrayBuffer | null}
   */
  take(size) {
    const fit = this.free.findIndex((buffer) => buffer.byteLength >= size && buffer.byteLength <= 4 * size + 4096);
    if (fit >= 0) return this.free.splice(fit, 1)[0];
    try {
      return new SharedArrayBuffer(Math.max(64, size + Math.floor(size / 8)));
    } catch {
      return null;
    }
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
  const copy = Array.isArray(data) ? [...data] : copyOf(/** @type {NumericData} */ (data));
  return new NewTensor(type, copy, [...dims]);
}

/**
 * Packs the feeds of a run: messages, buffers to transfer, and buffers of the pool to return after the run.
 */
export class Packer {
  /** @param {SharedPool | null} pool null if memory cannot be shared @param {import('./cached_outputs.js').Leases | null} [leases] feeds to send by id, without data */
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
   * Returns the packed feeds with all data, from the time of packing: the caller may have changed its tensors since.
   * @param {Record<string, import('../../common/protocol.js').WireValue>} wire
   */
  withData(wire) {
    return mapValues(wire, (value) => {
      const entry = value && 'held' in value && this.leases?.byId.get(Number(value.held));
      if (!entry) return value;
      const data = joinRows(entry.rows);
      return { type: value.type, dims: value.dims, data: this.share(data) ?? data };
    });
  }

  /**
   * Never detaches the caller's buffer: sends shared data without a copy, and a copy of other data.
   * @param {Tensor} tensor
   * @returns {WireTensor}
   */
  pack(tensor) {
    const { type } = tensor;
    const dims = [...tensor.dims];
    const known = this.leases?.byTensor.get(tensor);
    if (known) return { type, dims, data: NO_DATA, held: known.id };
    const data = /** @type {NumericData | string[]} */ (tensor.data);
    if (Array.isArray(data)) return { type, dims, data: [...data] };
    if (this.pool && isShared(data)) return { type, dims, data };
    return { type, dims, data: this.share(data) ?? this.copy(data) };
  }

  /** Copies data into shared memory; null if there is none. @param {NumericData} data @returns {NumericData | null} */
  share(data) {
    const buffer = this.pool?.take(data.byteLength);
    if (!buffer) return null;
    this.borrowed.push(buffer);
    const view = new (arrayClass(data))(buffer, 0, data.length);
    fill(view, data);
    return view;
  }

  /**
   * Copies data that may be sent again, because the page loses data that it transfers.
   * @param {NumericData} data @returns {NumericData}
   */
  copy(data) {
    const copy = copyOf(data);
    if (!this.leases) this.transfer.push(/** @type {ArrayBuffer} */ (copy.buffer));
    return copy;
  }
}

/** Sends a tensor to fill only if the worker can write to it. @param {Tensor} tensor @returns {WireTensor | null} */
export function packTarget({ type, dims, data }) {
  const numeric = /** @type {NumericData} */ (data);
  return !Array.isArray(data) && isShared(numeric) ? { type, dims, data: numeric } : null;
}

/** @param {NumericData} data @returns {boolean} */
export function isShared(data) {
  return typeof SharedArrayBuffer !== 'undefined' && data.buffer instanceof SharedArrayBuffer;
}

/** .slice() of a Buffer of Node.js would be a view. @param {NumericData} data @returns {NumericData} */
export const copyOf = (data) => new (arrayClass(data))(data);

/**
 * @param {string} name
 * @param {import('../../common/protocol.js').WireValue} wire
 * @param {Tensor | null} into
 * @param {import('../../gpu/device.js').Gpu | null} gpu of the page, if the session runs on it
 * @returns {Tensor | Tensor[] | null}
 */
export function unpackValue(name, wire, into, gpu) {
  if (!wire) return null;
  if (into && !Array.isArray(wire)) checkTarget(name, wire, into);
  return Array.isArray(wire) ? wire.map((item) => unpack(item, null, gpu)) : unpack(wire, into, gpu);
}

/** Dims of outputs are known only after the run. @param {string} name @param {WireTensor} wire @param {Tensor} into */
function checkTarget(name, { type, dims }, into) {
  const [output, target] = [`${RAW[type] ?? type} [${dims.join(', ')}]`, `${into.type} [${into.dims.join(', ')}]`];
  if (output !== target) throw new InvalidInput(`output "${name}" is ${output}, the tensor to fill is ${target}`);
}

/**
 * Returns the output: a new tensor, or the one to fill.
 * @param {WireTensor} wire
 * @param {Tensor | null} into
 * @param {import('../../gpu/device.js').Gpu | null} gpu
 * @returns {Tensor}
 */
function unpack({ type, dims, data }, into, gpu) {
  if ('gpu' in data) return into ?? onGpu({ type, dims, data }, data.gpu, /** @type {import('../../gpu/device.js').Gpu} */ (gpu));
  if (into?.location === 'gpu-buffer') {
    const hint = 'the session runs on WebAssembly, or the GPU has no such type';
    throw new InvalidInput(`a tensor on the GPU cannot hold this output of type ${type}`, { hint });
  }
  if (!into) return new NewTensor(RAW[type] ?? type, own(data), dims);
  const target = /** @type {NumericData | string[]} */ (into.data);
  if (target === data || [target, data].every((each) => !Array.isArray(each) && isShared(each))) return into; // the run has written to it
  if (Array.isArray(data)) Object.assign(target, data);
  else fill(/** @type {NumericData} */ (target), data);
  return into;
}
