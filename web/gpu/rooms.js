// Tensors in buffers with capacity for more rows, which they share: KV caches on the page's GPU. Only executor.mjs has this code,
// because the worker's sessions have no tensors on the GPU.

import { elementSize, load } from '../common/elements.js';
import { ExecutionError } from '../common/errors.js';
import { log } from '../common/log.js';
import { endsInNew, gather } from '../run/room.js';
import { USAGE } from './flags.js';
import { addShader } from './moves.js';
import { rangeOf, rangesIn } from './sizes.js';

/** @import { SharedRoom, WireTensor } from '../common/protocol.js' */
/** @import { ByteRanges } from '../runtime/growth.js' */
/** @import { GpuTensor, Range } from './types.js' */
/**
 * The GPU, as these tensors use it.
 * @typedef {import('./types.js').Device & { tensors: import('./tensors.js').GpuTensors, moves: import('./moves.js').Moves }} Gpu
 */

const BITS = 30; // of a number of rows in a buffer

/** An element as an integer. @param {number} per elements of a word @param {string} index */
const element = (per, index) => `((source[(${index}) / ${per}u] >> (((${index}) % ${per}u) * ${32 / per}u)) & ${2 ** (32 / per) - 1}u)`;

/**
 * What the shaders are told about the lines that they copy: their number; elements of a line; elements from the start of one line to
 * the next in the source and in the target; elements of a row; number of rows that a run has kept, and where in a line of the source
 * they begin; where the end of the overwritten rows, in binary, begins there.
 */
const SHAPE = /** @type {const} */ (['lines', 'length', 'stride', 'target_stride', 'row', 'kept', 'kept_at', 'end_at']);
const THIRD = `shape: Shape;
struct Shape { ${SHAPE.map((name) => `${name}: u32`).join(', ')} }`;

/**
 * Copies lines of elements and sets what lies between them to 0. Overwritten rows are those that a run has kept at the end of the line
 * (passes/caches/growing_caches.py).
 * @param {number} per elements of a word
 */
const rows = (per) => `
  if (i < arrayLength(&destination)) {
    var word = 0u;
    for (var k = 0u; k < ${per}u; k++) {
      let line = (i * ${per}u + k) / shape.target_stride; let place = (i * ${per}u + k) % shape.target_stride;
      if (line < shape.lines && place < shape.length) {
        let start = line * shape.stride;
        var index = start + place;
        if (shape.kept > 0u) {
          let row = place / shape.row;
          var end = 0u;
          for (var b = 0u; b < ${BITS}u; b++) {
            if (${element(per, 'start + shape.end_at + b')} != 0u) { end |= 1u << b; }
          }
          if (row < end && row + shape.kept >= end) {
            index = start + shape.kept_at + (row + shape.kept - end) * shape.row + place % shape.row;
          }
        }
        word |= ${element(per, 'index')} << (k * ${32 / per}u);
      }
    }
    destination[i] = word;
  }`;
for (const per of [1, 2, 4]) addShader(`rows ${per}`, rows(per), THIRD);

/** Those of a device. */
export class Rooms {
  /** @param {Gpu} gpu */
  constructor(gpu) {
    this.gpu = gpu;
    /** The tensors in each buffer. @type {Map<GPUBuffer, Set<SharedRoom>>} */
    this.shared = new Map();
    /**
     * By buffer, the rows after each run whose new rows are assumed to come last, until `verify` has seen them.
     * @type {WeakMap<GPUBuffer, Set<number>>}
     */
    this.appended = new WeakMap();
  }

  /** Compiles the shaders. */
  prepare() {
    return Promise.all([1, 2, 4].map((per) => this.gpu.moves.compile(`rows ${per}`)));
  }

  /**
   * A tensor that is the first rows along an axis of a buffer.
   * @param {GPUBuffer} buffer @param {string} type @param {number[]} dims @param {number} axis @param {number} places for which it has space
   * @returns {GpuTensor}
   */
  share(buffer, type, dims, axis, places) {
    const room = { axis, places, rows: dims[axis] };
    const known = this.shared.get(buffer);
    if (known) known.add(room);
    else this.shared.set(buffer, new Set([room]));
    return { type, dims, data: { gpu: buffer, room } };
  }

  /** Those of the tensors in a buffer. @param {GPUBuffer} buffer @returns {SharedRoom[]} */
  sharing(buffer) {
    return [...this.shared.get(buffer) ?? []];
  }

  /** A tensor is disposed of. Returns whether it was the last in its buffer. @param {GPUBuffer} buffer @param {SharedRoom} room */
  leave(buffer, room) {
    const others = this.shared.get(buffer);
    if (!others?.delete(room) || others.size) return false;
    this.appended.delete(buffer);
    return this.shared.delete(buffer);
  }

  /** A run writes new rows, which are assumed to come last. @param {GPUBuffer} buffer @param {number} rows after the run */
  noteAppended(buffer, rows) {
    const known = this.appended.get(buffer);
    if (known) known.add(rows);
    else this.appended.set(buffer, new Set([rows]));
  }

  /**
   * Whether later runs wrote behind a tensor's rows: rows that no run wrote are 0, so new rows came last if the last row is not 0.
   * Programs rarely use a tensor again that they have fed, so runs do not wait for this check. Throws ExecutionError.
   * @param {GpuTensor} tensor
   */
  async verify(tensor) {
    if (tensor.data.room?.isLost || this.unseen(tensor).length) await this.read(tensor);
  }

  /** Rows after later runs that no check has seen. @param {GpuTensor} tensor */
  unseen({ data: { gpu: buffer, room } }) {
    return [...this.appended.get(buffer) ?? []].filter((rows) => room && rows > room.rows);
  }

  /** The bytes of a tensor's buffer. @param {GpuTensor} tensor @returns {Promise<Uint8Array>} */
  async read(tensor) {
    const { buffer, size } = rangeOf(tensor);
    if (tensor.data.room?.isLost) throw overwritten('a run that failed may have');
    const [ranges, later] = [rangesIn(tensor), this.unseen(tensor)]; // when the copy begins
    let found = new Uint8Array(0);
    const copy = (/** @type {GPUBuffer} */ staging) => {
      const encoder = this.gpu.device.createCommandEncoder();
      encoder.copyBufferToBuffer(buffer, 0, staging, 0, size);
      this.gpu.submit(encoder);
    };
    if (size) await this.gpu.read(size, copy, (bytes) => { found = new Uint8Array(bytes.slice(0)); });
    if (!later.every((rows) => endsInNew(found, { ...ranges, length: rows * ranges.row }))) throw overwritten('a run has');
    for (const rows of later) this.appended.get(buffer)?.delete(rows);
    return found;
  }

  /**
   * Puts a tensor that shares a buffer in a buffer of its own. Returns `verify`; the page may use the buffer before it ends, so its
   * error is also printed. @param {GpuTensor} tensor
   */
  dense(tensor) {
    const check = this.verify(tensor);
    check.catch(({ message }) => log('error', message));
    const { type, dims, data } = tensor;
    const { gpu: buffer, room } = data;
    const own = this.gpu.tensors.create(type, dims);
    const encoder = this.gpu.device.createCommandEncoder();
    const ranges = rangesIn(tensor);
    this.encode(encoder, type, rangeOf(tensor), ranges, rangeOf(own), ranges.length, room?.undo);
    this.gpu.submit(encoder);
    this.gpu.tensors.dispose(buffer, room);
    data.gpu = own.data.gpu;
    delete data.room;
    return check;
  }

  /** Waits for the GPU and copies a tensor to the CPU. @param {GpuTensor} tensor @returns {Promise<WireTensor>} */
  async download(tensor) {
    if (tensor.data.room?.undo) {
      await this.dense(tensor);
      return this.gpu.tensors.download(tensor);
    }
    return load(gather(await this.read(tensor), rangesIn(tensor)), tensor.type, [...tensor.dims], null);
  }

  /**
   * Copies byte ranges of one buffer to another, where they are `stride` bytes apart. undo: rows at the end of each range's space that
   * keep overwritten rows, and their end in binary.
   * @param {GPUCommandEncoder} encoder @param {string} type of elements @param {Range} from @param {ByteRanges} ranges @param {Range} to @param {number} stride
   */
  encode(encoder, type, from, { count, length, stride: before, row: width }, to, stride, undo = 0) {
    if (count * length === 0) return;
    const unit = elementSize(type);
    const row = width / unit;
    const bits = Math.ceil(BITS / row);
    const end = before / unit;
    const shape = {
      lines: count, length: length / unit, stride: end, target_stride: stride / unit, row,
      kept: undo && undo - bits, kept_at: end - undo * row, end_at: end - bits * row,
    };
    const words = Uint32Array.from(SHAPE, (name) => shape[name]);
    const { device, moves } = this.gpu;
    const buffer = device.createBuffer({ size: words.byteLength, usage: USAGE.STORAGE | USAGE.COPY_DST, label: 'shape' });
    device.queue.writeBuffer(buffer, 0, words);
    moves.encode(encoder, `rows ${4 / unit}`, [from, to, { buffer, offset: 0, size: words.byteLength }], to.size);
  }
}

/** @param {string} run */
function overwritten(run) {
  const hint = 'getData() before a run is fed it keeps it; is seqlens_k less than total_sequence_length - 1?';
  return new ExecutionError(`${run} written its new keys among those of this cache`, { hint });
}
