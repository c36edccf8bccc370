// Copies between linear memory and the GPU in a run; and GPU tensors among feeds and outputs, which need no copies.
// Twin of pyruntime/native/execution/gpu_transfers.py.

import { ExecutionError, InvalidInput, outOfRange } from '../common/errors.js';
import { gpuBuffer } from '../common/protocol.js';
import { evaluateAll, symbols } from '../common/dims.js';
import { dimsOf, feedOf } from '../run/input_dims.js';
import { gather, rangesOf } from '../run/room.js';
import { USAGE } from './flags.js';
import { FAULT_BYTES, padToWords } from './memory.js';
import { bytesOf } from './sizes.js';
import { fromGpuStorage, isWide } from './storage.js';
import { GPU_TYPES } from './tensors.js';

/** @import { CopyStep, Header, TensorValue } from '../common/program.js' */
/** @import { Fetch, WireTensor, WireValue } from '../common/protocol.js' */
/** @import { Executor } from '../run/types.js' */
/** @import { State } from '../runtime/states.js' */
/** @import { GpuTensor } from './types.js' */
/** @typedef {import('../run/types.js').Transfers} Contract */
/**
 * The GPU, as transfers use it.
 * @typedef {import('./types.js').Device & { tensors: import('./tensors.js').GpuTensors, moves: import('./moves.js').Moves,
 *   rooms: import('./rooms.js').Rooms | null,
 *   cachesFor?: import('./setting.js').TensorParts['cachesFor'] }} Gpu
 */
/**
 * The part of a GPU runner that transfers use. checks: whether kernels check indices; timeout: seconds to
 * wait for the device.
 * @typedef {{ gpu: Gpu, timeout: number, memory: import('./memory.js').GpuMemory, params: import('./bindings.js').Parameters, checks: boolean,
 *   releaseBorrowed(): void }} GpuRunner
 */

/** @implements {Contract} */
export class Transfers {
  /** @param {Executor} executor @param {GpuRunner} gpu */
  constructor(executor, gpu) {
    this.executor = executor;
    this.gpu = gpu;
    const { header } = executor;
    const read = readOnCpu(header);
    const outputs = header.outputs.map(({ value }) => value);
    const copies = header.blocks[1].steps.filter((step) => step.op === 'copy' && step.to === 'wasm');
    const arriving = new Set(copies.flatMap((step) => /** @type {CopyStep} */ (step).pairs.map(([, { buffer }]) => buffer)));
    const leaving = new Set(outputs.flatMap(buffersOf));
    /** Inputs that only kernels on the GPU read. */
    this.inputs = header.inputs.filter(({ buffer }) => !read.has(buffer) && !leaving.has(buffer));
    /** Null in the worker, whose sessions have no tensors on the GPU. */
    this.caches = gpu.gpu.cachesFor?.(executor, gpu, this.inputs) ?? null;
    /** Names of outputs whose buffers in linear memory only the page reads, by buffer. @type {Map<number, string[]>} */
    this.outputs = new Map();
    for (const { name, value } of header.outputs) {
      for (const buffer of buffersOf(value)) {
        if (arriving.has(buffer) && !read.has(buffer)) this.outputs.set(buffer, [...(this.outputs.get(buffer) ?? []), name]);
      }
    }
    /** Outputs that kernels of the main block write on the GPU, by buffer. @type {Map<number, { name: string, value: TensorValue }>} */
    this.sources = new Map();
    const calls = header.blocks[1].steps.flatMap((step) => (step.op === 'gpu' ? step.calls : []));
    const written = new Set(calls.flatMap(({ alloc }) => alloc));
    for (const [{ buffer }, target] of copies.flatMap((step) => /** @type {CopyStep} */ (step).pairs)) {
      const [name] = this.outputs.get(target.buffer) ?? [];
      if (name !== undefined && written.has(buffer)) this.sources.set(buffer, { name, value: target });
    }
    /** GPU tensors among this run's feeds, by buffer. @type {Map<number, GpuTensor>} */
    this.remote = new Map();
    /** @type {Record<string, Fetch>} */
    this.fetches = {};
    /** This run's outputs that stay on the GPU, and those among them that are new tensors. @type {Map<string, GpuTensor>} */
    this.gpuOutputs = new Map();
    /** @type {GpuTensor[]} */
    this.created = [];
    /** Whether this run narrowed 64-bit integers of a feed. */
    this.narrowed = false;
  }

  /** Whether a feed can stay on the GPU. @param {string} name @param {number} [item] in a sequence */
  keepsInput(name, item) {
    return this.inputs.some((input) => input.name === name && input.item === item);
  }

  /**
   * Refuses buffers that cannot be used, and compiles shaders that move the others.
   * @param {Record<string, WireValue>} feeds @param {Record<string, Fetch>} fetches
   */
  async prepare(feeds, fetches) {
    const { tensors, moves } = this.gpu.gpu;
    const ins = named(feeds, (name, item) => `input "${name}"${item}`);
    const outs = named(fetches, (name) => `the tensor to fill for "${name}"`);
    const fresh = this.executor.header.outputs.filter(({ name }) => fetches[name] === 'gpu');
    if (ins.length + outs.length + fresh.length === 0) return;
    await tensors.check(ins, 'feed');
    await tensors.check(outs, 'fill');
    const types = fresh.flatMap(({ value }) => (value && 'dtype' in value ? [value.dtype] : []));
    await moves.prepare(ins.map(([, tensor]) => tensor), outs.map(([, tensor]) => tensor), types);
    await this.caches?.prepare(ins);
  }

  /** @param {Record<string, WireValue>} feeds @param {Record<string, Fetch>} fetches */
  beginRun(feeds, fetches) {
    this.fetches = fetches;
    this.gpuOutputs.clear();
    this.created = [];
    this.narrowed = false;
    this.remote.clear();
    for (const input of this.executor.header.inputs) {
      const feed = feedOf(feeds, input);
      if (!onGpu(feed)) continue;
      this.caches?.separate(feed);
      this.remote.set(input.buffer, feed);
    }
  }

  /** The capacities, by buffer, of caches that are on the GPU before or after the run. @param {Record<string, WireValue>} feeds @param {import('../common/program.js').Input[]} inputs that the run reads */
  beginCaches(feeds, inputs) {
    return this.caches?.begin(feeds, this.fetches, inputs, () => dimsOf(this.executor.plan, feeds, inputs));
  }

  endRun() {
    this.caches?.end();
  }

  /** The run failed: disposes of the tensors that it created. */
  abandon() {
    this.caches?.abandon();
    this.gpu.memory.abandon();
    this.gpu.params.release(); // its buffer or a bind group may be invalid: GPU errors are reported later
    this.gpu.releaseBorrowed();
    for (const { data } of this.created) this.gpu.gpu.tensors.dispose(data.gpu, data.room);
    this.gpu.gpu.tensors.freePool(); // the page may have destroyed a buffer in it without an event
  }

  /** Runs a copy step. @param {CopyStep} step @param {State} state @param {string} key @returns {State | Promise<State>} */
  run(step, state, key) {
    const { plan } = this.executor;
    const { ownBuffers } = this.gpu.memory;
    const { env } = state;
    for (const [{ buffer }, target] of step.pairs) {
      const own = this.caches?.own(buffer, env);
      if (own) ownBuffers.set(target.buffer, own);
    }
    const unused = step.pairs.flatMap(([, { buffer }]) => (this.isUnused(step, buffer) ? [buffer] : []));
    const after = plan.advance(state, unused.length ? `${key}|${unused.join()}` : key, (next) => {
      for (const [, { buffer }] of step.pairs) {
        if (unused.includes(buffer)) next.take(buffer, 0, plan.isOnGpu(buffer));
        else plan.take(next, [buffer]);
      }
      next.drop(step.free);
    });
    if (step.to === 'wasm') return this.fetch(step, state, after);
    for (const [{ buffer, dtype }, target] of step.pairs) {
      if (ownBuffers.has(target.buffer)) continue;
      const { address } = plan.span(after, target.buffer);
      const remote = this.remote.get(buffer);
      const size = remote ? plan.size(after.env, target.buffer) : 0;
      if (remote && this.canBind(remote, size)) {
        this.gpu.memory.ownBuffers.set(target.buffer, { buffer: remote.data.gpu, size });
      } else if (remote?.data.room) {
        this.caches?.moveIn(address, remote);
      } else if (remote) {
        this.narrowed = this.gpu.gpu.moves.in(this.gpu.memory, address, remote) || this.narrowed;
      } else this.write(address, buffer, dtype, state);
    }
    return after;
  }

  /**
   * Copies a tensor of linear memory to the session's memory; of a tensor with capacity for more rows, its rows. If the CPU appends to it,
   * these are the rows of the output, which lies in the buffer of the input.
   * @param {number} address @param {number} buffer @param {string} dtype @param {State} state
   */
  write(address, buffer, dtype, state) {
    const { memory } = this.gpu;
    const { inputs, outputs } = this.executor.header;
    const bytes = this.executor.bytes(state, buffer);
    const all = [...outputs.map(({ value: output }) => output), ...inputs];
    const value = all.flatMap((each) => (each && 'buffer' in each && each.buffer === buffer && each.room ? each : []))[0];
    const isKnown = value?.dims.every((dim) => [...symbols(dim)].every((symbol) => state.env.has(symbol)));
    if (value && isKnown) memory.writeRanges(address, bytes, dtype, rangesOf(value, state.env));
    else memory.write(address, bytes, dtype);
  }

  /** Whether the target of a copy needs no memory of the session. @param {CopyStep} step @param {number} buffer */
  isUnused({ to }, buffer) {
    if (to !== 'wasm') return this.gpu.memory.ownBuffers.has(buffer);
    const fetched = this.outputs.get(buffer)?.filter((name) => Object.hasOwn(this.fetches, name));
    return fetched?.length === 0;
  }

  /**
   * Copies tensors from the GPU, in one transfer.
   * @param {CopyStep} step @param {State} state @param {State} after @returns {State | Promise<State>}
   */
  fetch(step, state, after) {
    const { plan } = this.executor;
    const needed = step.pairs.filter((pair) => this.neededOnCpu(pair, state));
    const sizes = needed.map(([{ buffer }]) => plan.size(state.env, buffer));
    const starts = sizes.map((_, n) => sizes.slice(0, n).reduce((sum, size) => sum + Math.ceil(size / 8) * 8, 0));
    const total = sizes.reduce((sum, size) => sum + Math.ceil(size / 8) * 8, 0);
    const record = this.gpu.checks || this.narrowed ? FAULT_BYTES : 0;
    if (!total && !record) return after;
    const copy = (/** @type {GPUBuffer} */ staging) => {
      if (record) this.gpu.memory.commands().copyBufferToBuffer(this.gpu.memory.faults, 0, staging, total, record);
      needed.forEach((pair, n) => sizes[n] && this.gpu.memory.copyOut(this.place(pair, state), staging, starts[n]));
      this.gpu.memory.flush();
    };
    return this.gpu.gpu.read(total + record, copy, (found) => {
      if (record) this.checkFaults(new DataView(found, total, record));
      needed.forEach(([, { buffer, dtype }], n) => {
        fromGpuStorage(new Uint8Array(found, starts[n], sizes[n]), dtype, this.executor.bytes(after, buffer));
      });
    }, this.gpu.memory.pending, this.gpu.timeout).then(() => after);
  }

  /** Throws the error that the fault record has, and clears it for the next run. @param {DataView} record */
  checkFaults(record) {
    const [node, extent, index, wide] = [0, 4, 8, 12].map((at) => record.getInt32(at, true));
    if (!node && !wide) return;
    this.executor.hasChangedStates = false; // kernels that change weights look at the record, too
    this.gpu.gpu.device.queue.writeBuffer(this.gpu.memory.faults, 0, new Uint8Array(FAULT_BYTES));
    if (wide) {
      const text = "a 64-bit integer of a GPU tensor does not fit the GPU's 32-bit integers";
      throw new ExecutionError(text, { hint: 'use the provider "wasm"' });
    }
    throw outOfRange(this.executor.header.checked[node - 1], index, extent);
  }

  /**
   * Whether kernels can bind the buffer of a tensor. No other tensor of the run may use it, because shaders bind all
   * buffers for writing. @param {GpuTensor} tensor @param {number} size bytes of the tensor in the session's memory
   */
  canBind({ type, dims, data: { gpu: buffer, room } }, size) {
    const all = [...this.remote.values(), ...Object.values(this.fetches).filter(onGpu), ...this.created];
    const usage = USAGE.STORAGE | USAGE.COPY_SRC;
    const usable = !room && !isWide(type) && (buffer.usage & usage) === usage && size > 0 && bytesOf(type, dims) === size;
    return usable && all.filter(({ data }) => data.gpu === buffer).length === 1;
  }

  /**
   * Before a step: creates the tensors of its outputs that stay on the GPU, so that its kernels write them directly.
   * @param {import('../common/program.js').GpuStep} step @param {State} after
   */
  createOutputs({ calls }, after) {
    if (!this.sources.size) return;
    for (const buffer of calls.flatMap(({ alloc }) => alloc.filter((each) => this.sources.has(each)))) {
      const { name, value } = /** @type {{ name: string, value: TensorValue }} */ (this.sources.get(buffer));
      const known = value.dims.every((dim) => [...symbols(dim)].every((symbol) => after.env.has(symbol)));
      const isFetched = known && Object.hasOwn(this.fetches, name);
      const tensor = isFetched && this.gpuOutput(name, value.dtype, evaluateAll(value.dims, after.env));
      const size = this.executor.plan.size(after.env, buffer);
      if (tensor && this.canBind(tensor, size)) this.gpu.memory.ownBuffers.set(buffer, { buffer: tensor.data.gpu, size });
    }
  }

  /** The place of a tensor on the GPU. @param {TensorValue[]} pair the first one @param {State} state */
  place([{ buffer }], state) {
    const { plan } = this.executor;
    return this.gpu.memory.find(buffer, plan.span(state, buffer).address, plan.size(state.env, buffer));
  }

  /**
   * Copies an output that stays on the GPU. Returns whether the CPU needs it too.
   * @param {[TensorValue, TensorValue]} pair @param {State} state
   */
  neededOnCpu([source, target], state) {
    const names = this.outputs.get(target.buffer);
    if (!names) return true;
    const { plan } = this.executor;
    let onCpu = false;
    for (const name of names.filter((each) => Object.hasOwn(this.fetches, each))) {
      const tensor = this.cached(name, state) ?? this.gpuOutputs.get(name) ?? this.gpuOutput(name, source.dtype, this.dims(name, target, state));
      const own = this.gpu.memory.ownBuffers.get(source.buffer);
      if (!tensor) onCpu = true;
      else if (tensor.data.gpu !== own?.buffer) this.moveOut(name, this.place([source], state), tensor, state.env);
    }
    return onCpu;
  }

  /** An output that stays in the buffer of its feed; null for others. @param {string} name @param {State} state */
  cached(name, state) {
    const tensor = this.caches?.result(name, state.env, this.fetches[name]) ?? null;
    if (tensor) this.gpuOutputs.set(name, tensor);
    if (tensor?.data.room) this.created.push(tensor);
    return tensor;
  }

  /** @param {string} name of an output @param {TensorValue} target @param {State} state */
  dims(name, target, state) {
    const output = this.executor.header.outputs.find((each) => each.name === name);
    return evaluateAll((/** @type {TensorValue} */ (output?.value) ?? target).dims, state.env);
  }

  /** Copies an output to its tensor. @param {string} name @param {import('./types.js').Range} from @param {GpuTensor} tensor @param {import('../common/dims.js').Env} env */
  moveOut(name, from, tensor, env) {
    if (!this.caches?.moveOut(name, from, tensor, env)) this.gpu.gpu.moves.out(this.gpu.memory, from, tensor);
  }

  /** The GPU tensor for an output; null if the output goes to the CPU. @param {string} name @param {string} dtype @param {number[]} dims */
  gpuOutput(name, dtype, dims) {
    const fetch = this.fetches[name];
    const into = onGpu(fetch) ? fetch : null;
    if (!into && (fetch !== 'gpu' || !GPU_TYPES.has(dtype))) return null;
    if (into && (into.type !== dtype || into.dims.join() !== dims.join())) {
      const [actual, expected] = [`${dtype} [${dims.join(', ')}]`, `${into.type} [${into.dims.join(', ')}]`];
      throw new InvalidInput(`the output "${name}" is ${actual}, the tensor to fill is ${expected}`);
    }
    const tensor = into ?? this.gpu.gpu.tensors.create(dtype, dims);
    if (!into) this.created.push(tensor);
    this.gpuOutputs.set(name, tensor);
    return tensor;
  }

  /**
   * An output that stays on the GPU, even if the CPU computed it. Null if it goes to the CPU.
   * @param {string} name @param {TensorValue} value @param {State} state @returns {WireTensor | null}
   */
  output(name, value, state) {
    const known = this.gpuOutputs.get(name);
    if (known) return known;
    const tensor = this.gpuOutput(name, value.dtype, evaluateAll(value.dims, state.env));
    if (!tensor) return null;
    const { gpu: buffer } = tensor.data;
    if (!(buffer.usage & USAGE.COPY_DST)) {
      throw new InvalidInput(`the output "${name}" is computed on the CPU: its GPUBuffer needs the usage COPY_DST`);
    }
    const bytes = this.executor.bytes(state, value.buffer);
    const data = padToWords(value.room ? gather(bytes, rangesOf(value, state.env)) : bytes); // tensors of the page are dense
    this.gpu.gpu.device.queue.writeBuffer(buffer, 0, /** @type {Uint8Array<ArrayBuffer>} */ (data));
    return tensor;
  }
}

/** @param {WireValue | Fetch | undefined} value @returns {value is GpuTensor} */
const onGpu = (value) => Boolean(value && typeof value === 'object' && !Array.isArray(value) && gpuBuffer(value.data));

/**
 * The GPU tensors among values, with their names in errors.
 * @param {Record<string, WireValue | Fetch>} values @param {(name: string, item: string) => string} call
 * @returns {[string, GpuTensor][]}
 */
function named(values, call) {
  const items = Object.entries(values).flatMap(([name, value]) => (
    Array.isArray(value) ? value.map((item, n) => ({ name: call(name, `[${n}]`), item })) : [{ name: call(name, ''), item: value }]));
  return items.flatMap(({ name, item }) => (onGpu(item) ? [/** @type {[string, GpuTensor]} */ ([name, item])] : []));
}

/** Buffers in linear memory that any step but a copy to the GPU reads. @param {Header} header @returns {Set<number>} */
function readOnCpu({ blocks }) {
  /** @type {Set<number>} */
  const read = new Set();
  const note = (/** @type {import('../common/program.js').Value[]} */ values) => {
    for (const buffer of values.flatMap(buffersOf)) read.add(buffer);
  };
  blocks.forEach(({ steps, outputs }, number) => {
    if (number > 1) note(outputs);
    for (const step of steps) {
      if (step.op === 'wasm') for (const { buffers } of step.calls) for (const buffer of buffers) read.add(buffer);
      if (step.op === 'read') note([step.value]);
      if (step.op === 'host') note(step.inputs);
      if (step.op === 'if') note([step.condition]);
      if (step.op === 'loop') note([step.trip, step.condition, ...step.carried]);
      if (step.op === 'copy' && step.to === 'wasm') note(step.pairs.map(([source]) => source));
    }
  });
  return read;
}

/** @param {import('../common/program.js').Value} value @returns {number[]} */
function buffersOf(value) {
  if (!value) return [];
  return 'items' in value ? value.items.flatMap(buffersOf) : [value.buffer];
}
