// Caches that kernels on the GPU grow in place: past and present share a buffer with capacity for more rows
// (docs/design/kv-caches.md#on-the-gpu). Twin of pyruntime/native/execution/gpu_caches.py.

import { evaluate, evaluateAll } from '../common/dims.js';
import { elementSize } from '../common/elements.js';
import { InvalidInput, OutOfMemory } from '../common/errors.js';
import { gpuBuffer } from '../common/protocol.js';
import { feedOf } from '../run/input_dims.js';
import { rangesOf, scatter } from '../run/room.js';
import { byteRanges, capacityOnGpu, firstNewRow } from '../runtime/growth.js';
import { USAGE } from './flags.js';
import { padToWords } from './memory.js';
import { bytesOf, rangeOf, rangesIn } from './sizes.js';
import { isWide } from './storage.js';

/** @import { Env } from '../common/dims.js' */
/** @import { CopyStep, Header, Input, InputRoom, TensorValue } from '../common/program.js' */
/** @import { Fetch, SharedRoom, WireTensor, WireValue } from '../common/protocol.js' */
/** @import { ByteRanges } from '../runtime/growth.js' */
/** @import { GpuTensor } from './types.js' */
/**
 * An input that lies in the buffer of an output on the GPU. name, value: of the output.
 * @typedef {{ input: Input, name: string, value: TensorValue, room: InputRoom }} Cache
 */
/**
 * The feed of a cache in this run. places: capacity of the buffer that the run works in; fills: the tensor to fill is the feed
 * itself; isAlone: no other feed is in its buffer; buffer: null before the run needs it; isNew: the run created it.
 * @typedef {{ cache: Cache, feed: WireTensor, places: number, fills: boolean, isAlone: boolean, buffer: GPUBuffer | null, isNew: boolean }} Fed
 */
/** @import { Gpu, Rooms } from './rooms.js' */
/** The part of a GPU runner that caches use. @typedef {{ gpu: Gpu, memory: import('./memory.js').GpuMemory }} Runner */

export class GpuCaches {
  /** @param {import('../run/types.js').Executor} executor @param {Runner} runner @param {Input[]} inputs that only the GPU reads @param {Rooms} rooms */
  constructor({ header, plan }, runner, inputs, rooms) {
    this.header = header;
    this.plan = plan;
    this.runner = runner;
    this.rooms = rooms;
    /** By buffer of the input. @type {Map<number, Cache>} */
    this.byInput = new Map(inputs.flatMap((input) => {
      const cache = cacheOf(header, input);
      return cache ? [[input.buffer, cache]] : [];
    }));
    /** By buffer of the input. @type {Map<number, Fed>} */
    this.fed = new Map();
    /** Feeds whose rows this run overwrites, and the submission from which on it may have done so. @type {{ room: SharedRoom, submission: number }[]} */
    this.overwritten = [];
  }

  get tensors() {
    return this.runner.gpu.tensors;
  }

  /**
   * Chooses the capacity of caches that are on the GPU before or after the run.
   * @param {Record<string, WireValue>} feeds @param {Record<string, Fetch>} fetches @param {Input[]} inputs that the run reads
   * @param {() => Env} dims values of symbols that follow from the feeds' dims @returns {Map<number, number>} capacities by buffer
   */
  begin(feeds, fetches, inputs, dims) {
    this.fed.clear();
    this.overwritten = [];
    /** @type {Map<number, number>} */
    const capacities = new Map();
    if (!this.byInput.size) return capacities;
    /** @type {Env | null} */
    let env = null;
    const buffers = Object.values(feeds).flat().map((each) => each && gpuBuffer(each.data));
    for (const input of inputs) {
      const cache = this.byInput.get(input.buffer);
      const feed = cache && feedOf(feeds, input);
      if (!cache || !feed || !this.suits(cache, feed, fetches)) continue;
      env ??= dims();
      const fills = this.fills(cache, feed, fetches);
      const places = fills ? capacityOf(feed, cache.room.axis) : this.capacity(cache, feed, env);
      const isAlone = buffers.filter((each) => each === gpuBuffer(feed.data)).length === 1;
      this.fed.set(input.buffer, { cache, feed, places, fills, isAlone, buffer: null, isNew: false });
      capacities.set(input.buffer, places);
    }
    return capacities;
  }

  /** Compiles the shaders that a run needs, and checks its feeds (`Rooms.verify`). @param {[string, GpuTensor][]} feeds */
  async prepare(feeds) {
    const shared = feeds.filter(([, { data }]) => data.room);
    await Promise.all(shared.map(([, tensor]) => this.rooms.verify(tensor)));
    if (this.byInput.size || shared.length) await this.rooms.prepare();
  }

  /** Puts a feed that another run has overwritten in a buffer of its own. @param {GpuTensor} tensor */
  separate(tensor) {
    if (tensor.data.room?.undo) this.rooms.dense(tensor);
  }

  /** Copies a tensor with capacity for more to the session's memory. @param {number} address @param {GpuTensor} tensor */
  moveIn(address, tensor) {
    const { memory } = this.runner;
    const ranges = rangesIn(tensor);
    const to = memory.locate(address, ranges.count * ranges.length);
    this.rooms.encode(memory.commands(), tensor.type, rangeOf(tensor), ranges, to, ranges.length);
  }

  /**
   * Copies an output that the session's memory has with capacity for more to a dense tensor. Returns whether it is one.
   * @param {string} name @param {import('./types.js').Range} from @param {GpuTensor} tensor @param {Env} env
   */
  moveOut(name, from, tensor, env) {
    const value = /** @type {TensorValue} */ (this.header.outputs.find((each) => each.name === name)?.value);
    if (!value.room || isWide(tensor.type)) return false;
    const ranges = rangesOf(value, env);
    this.rooms.encode(this.runner.memory.commands(), tensor.type, from, ranges, rangeOf(tensor), ranges.length);
    return true;
  }

  /** @param {Cache} cache @param {WireTensor} feed @param {Record<string, Fetch>} fetches */
  suits({ name, room }, feed, fetches) {
    if (isWide(feed.type) || Array.isArray(feed.data) || (roomOf(feed)?.axis ?? room.axis) !== room.axis) return false;
    return Boolean(gpuBuffer(feed.data)) || Boolean(fetches[name] && (fetches[name] === 'gpu' || gpuBuffer(fetches[name].data)));
  }

  /** Whether the run is to overwrite its feed. @param {Cache} cache @param {WireTensor} feed @param {Record<string, Fetch>} fetches */
  fills({ name }, { data }, fetches) {
    const buffer = gpuBuffer(data);
    const into = fetches[name];
    return buffer !== null && Boolean(buffer.usage & USAGE.STORAGE) && Boolean(into && into !== 'gpu' && gpuBuffer(into.data) === buffer);
  }

  /** @param {Cache} cache @param {WireTensor} feed @param {Env} env */
  capacity({ input, value, room }, feed, env) {
    const isFixed = JSON.stringify(value.dims[room.axis]) === JSON.stringify(input.dims[room.axis]);
    const known = roomOf(feed)?.axis === room.axis ? capacityOf(feed, room.axis) : 0;
    const least = evaluate(room.least, env) + (known && spare(room, isFixed || feed.dims[0] > 1, env));
    if (known >= least) return known;
    const enough = this.plan.leastCapacity(input.buffer, least);
    if (isFixed) return enough;
    const ranges = byteRanges([...feed.dims], room.axis, feed.dims[room.axis], elementSize(feed.type));
    return Math.max(enough, capacityOnGpu(least, ranges, this.runner.memory.chunk));
  }

  /**
   * The buffer in which the run appends to the feed of an input, with the feed's rows; null for other inputs.
   * @param {number} input buffer @param {Env} env after the steps that set the number of rows
   */
  own(input, env) {
    const fed = this.fed.get(input);
    if (!fed) return null;
    fed.buffer ??= this.take(fed, env);
    return { buffer: fed.buffer, size: fed.places * rowBytes(fed) };
  }

  /** @param {Fed} fed @param {Env} env @returns {GPUBuffer} */
  take(fed, env) {
    const { cache: { name, value, room }, feed, places } = fed;
    const total = evaluate(value.dims[room.axis], env);
    if (total > places) throw new InvalidInput(`the output "${name}" has ${total} rows along axis ${room.axis}, the tensor to fill has ${places}`);
    const buffer = gpuBuffer(feed.data);
    if (buffer && (fed.fills || this.canAppend(fed, total, env))) return buffer;
    const size = places * rowBytes(fed);
    const { chunk } = this.runner.memory;
    if (size > chunk) throw Object.assign(new OutOfMemory(`a tensor needs ${size} bytes, the largest buffer of the GPU has ${chunk}`), { gpu: true });
    const fresh = this.tensors.allocate(Math.max(size, 4));
    Object.assign(fed, { buffer: fresh, isNew: true });
    const ranges = byteRanges([...feed.dims], room.axis, places, elementSize(feed.type));
    if (buffer) this.copy(/** @type {GpuTensor} */ (feed), fresh, ranges);
    else this.upload(fresh, /** @type {ArrayBufferView} */ (feed.data), ranges, size);
    return fresh;
  }

  /**
   * Whether the run can write into the buffer of its feed: it changes no row of a tensor that still exists, or only rows of the feed,
   * which it keeps. The end of the buffer keeps the rows of one run. @param {Fed} fed @param {number} total rows after the run @param {Env} env
   */
  canAppend({ cache: { room }, feed, places, isAlone }, total, env) {
    const buffer = gpuBuffer(feed.data);
    const own = roomOf(feed);
    if (!buffer || own?.places !== places || !isAlone) return false;
    const rows = feed.dims[room.axis];
    const first = room.mixed === undefined ? rows : firstNewRow(feed.dims[0], rows, total, evaluate(room.mixed, env));
    const others = this.rooms.sharing(buffer);
    const changed = others.filter((other) => other.rows > first);
    if (others.some((other) => other.undo) || changed.some((other) => other !== own)) return false;
    if (changed.length) {
      const undo = evaluate(room.undo ?? 0, env);
      if (!undo || total + undo > places) return false;
      own.undo = undo;
      this.overwritten.push({ room: own, submission: this.runner.memory.submission });
    }
    if (room.mixed !== undefined && first > 0) this.rooms.noteAppended(buffer, total);
    return true;
  }

  /** @param {GpuTensor} feed @param {GPUBuffer} target @param {ByteRanges} ranges of the target */
  copy(feed, target, { count, length, stride, row }) {
    const from = feed.data.room ? rangesIn(feed) : { count, length, stride: length, row };
    const to = { buffer: target, offset: 0, size: Math.ceil((count * stride) / 4) * 4 };
    this.rooms.encode(this.runner.memory.commands(), feed.type, rangeOf(feed), from, to, stride);
  }

  /** @param {GPUBuffer} buffer @param {ArrayBufferView} data @param {ByteRanges} ranges @param {number} size */
  upload(buffer, data, ranges, size) {
    if (!data.byteLength) return;
    const bytes = new Uint8Array(size);
    scatter(data, bytes, ranges);
    this.runner.memory.flush();
    this.runner.gpu.device.queue.writeBuffer(buffer, 0, /** @type {Uint8Array<ArrayBuffer>} */ (padToWords(bytes)));
  }

  /**
   * An output that stays in the buffer of its feed; null for other outputs.
   * @param {string} name @param {Env} env @param {Fetch} fetch @returns {GpuTensor | null}
   */
  result(name, env, fetch) {
    const fed = [...this.fed.values()].find(({ cache }) => cache.name === name);
    if (!fed?.buffer) return null;
    const { cache: { value, room: { axis } }, places, buffer } = fed;
    const dims = evaluateAll(value.dims, env);
    if (fed.fills) return sameDims(name, /** @type {GpuTensor} */ (fetch), dims);
    if (fetch !== 'gpu') return null;
    return this.rooms.share(buffer, value.dtype, dims, axis, places);
  }

  /** The run failed, and its commands since the last submission are dropped. */
  abandon() {
    for (const { room, submission } of this.overwritten) {
      Object.assign(room, { undo: 0, isLost: this.runner.memory.submission > submission });
    }
    this.end();
  }

  /** Ends a run: frees buffers that no tensor uses. */
  end() {
    for (const { buffer, isNew } of this.fed.values()) {
      if (buffer && isNew && !this.rooms.sharing(buffer).length) this.tensors.dispose(buffer);
    }
    this.fed.clear();
  }
}

/** @param {string} name @param {GpuTensor} into @param {number[]} dims */
function sameDims(name, into, dims) {
  if (into.dims.join() === dims.join()) return into;
  throw new InvalidInput(`the output "${name}" is [${dims.join(', ')}], the tensor to fill is [${into.dims.join(', ')}]`);
}

/**
 * Rows beyond the least that let a run keep what it overwrites. The least of a cache that may grow has rows for new keys, which a single
 * item's run needs only if it overwrites none. @param {InputRoom} room @param {boolean} all @param {Env} env
 */
const spare = ({ undo, mixed = 0 }, all, env) => (undo === undefined ? 0 : evaluate(undo, env) - (all ? 0 : evaluate(mixed, env)));

/** @param {Fed} fed bytes of one row in all ranges */
const rowBytes = ({ cache: { room: { axis } }, feed: { type, dims } }) => bytesOf(type, dims.map((d, n) => (n === axis ? 1 : d)));

/** @param {WireTensor} tensor @returns {SharedRoom | undefined} */
const roomOf = ({ data }) => ('gpu' in data ? data.room : undefined);

/** Rows along an axis for which a tensor's buffer has space. @param {WireTensor} tensor @param {number} axis */
const capacityOf = (tensor, axis) => roomOf(tensor)?.places ?? tensor.dims[axis];

/** The cache that an input is, if it is one. @param {Header} header @param {Input} input @returns {Cache | null} */
function cacheOf({ outputs, blocks }, input) {
  const pairs = blocks[1].steps.flatMap((step) => (step.op === 'copy' ? /** @type {CopyStep} */ (step).pairs : []));
  const onGpu = pairs.find(([source]) => source.buffer === input.buffer)?.[1].buffer;
  const results = new Set(pairs.filter(([source]) => source.buffer === onGpu).map(([, target]) => target.buffer));
  const output = outputs.find(({ value }) => value && 'buffer' in value && value.room && results.has(value.buffer));
  if (!input.room || !output) return null;
  return { input, name: output.name, value: /** @type {TensorValue} */ (output.value), room: input.room };
}
