// Runs the GPU steps of a Program. Mirrors providers/webgpu/wgpu_runner.py.

import { submitInPortions } from '../run/portions.js';
import { KernelTimer } from './timer.js';
import { Transfers } from './transfers.js';
import { BindGroups, LayoutBindings, Parameters } from './bindings.js';
import { FAULT_BYTES, GpuMemory } from './memory.js';
import { Prepared } from './prepared.js';

/** @import { Call } from '../common/program.js' */
/** @import { Gpu } from './transfers.js' */
/** @import { Shader } from './types.js' */
/** @typedef {import('../run/types.js').GpuRunner} Contract */

/** A Program's shaders, and their labels in errors. @param {import('../common/program.js').ProgramData} program */
export function shadersOf({ header, blob }) {
  const [at, size] = header.modules.webgpu;
  /** @type {Shader[]} */
  const shaders = JSON.parse(new TextDecoder().decode(blob.slice(at, at + size)));
  const labels = shaders.map((_, n) => `kernel ${n}`);
  for (const { steps } of header.blocks) {
    for (const step of steps) if (step.op === 'gpu') for (const call of step.calls) labels[Number(call.kernel)] = labelOf(call);
  }
  return { shaders, labels };
}

/**
 * The nodes that use these shaders, with reasons.
 * @param {import('../common/program.js').ProgramData} program @param {Map<number, import('../common/errors.js').PyRuntimeError>} failed by number
 * @returns {Record<string, string>}
 */
function nodesOf({ header }, failed) {
  const calls = header.blocks.flatMap(({ steps }) => steps.flatMap((step) => (step.op === 'gpu' ? step.calls : [])));
  return Object.fromEntries(calls.flatMap(({ node, kernel }) => {
    const error = failed.get(Number(kernel));
    return error ? [[node, error.detail.replace(/\s+/g, ' ').trim()]] : [];
  }));
}

/** @implements {Contract} */
export class GpuRunner {
  /** @param {Gpu} gpu @param {Shader[]} shaders @param {GPUComputePipeline[]} pipelines @param {number} timeout seconds to wait for the device */
  constructor(gpu, shaders, pipelines, timeout = Infinity) {
    this.gpu = gpu;
    this.timeout = timeout;
    this.shaders = shaders;
    this.pipelines = pipelines;
    this.memory = new GpuMemory(gpu);
    this.params = new Parameters(this.memory);
    this.memory.parameters = this.params;
    this.groups = new BindGroups(this.memory);
    /** Whether kernels check indices. */
    this.checks = shaders.some(({ faults }) => faults);
    /** What this run binds in buffers of other owners. @type {Set<LayoutBindings>} */
    this.borrowed = new Set();
    /** While kernels are timed. @type {KernelTimer | null} */
    this.timer = null;
  }

  /**
   * Compiles the shaders. If the driver does not compile some, `atFault` of the error has their nodes, with reasons.
   * @param {Gpu} gpu @param {import('../common/program.js').ProgramData} program @param {number} timeout @returns {Promise<GpuRunner>}
   */
  static async create(gpu, program, timeout) {
    const { shaders, labels } = shadersOf(program);
    const pipelines = await gpu.compile(shaders, labels, timeout).catch((error) => {
      throw error.shaders ? Object.assign(error, { atFault: nodesOf(program, error.shaders) }) : error;
    });
    return new GpuRunner(gpu, shaders, pipelines, timeout);
  }

  /** @param {import('../run/executor.js').Executor} executor */
  transfers(executor) {
    return new Transfers(executor, this);
  }

  /** @param {Call[]} calls @param {import('../runtime/states.js').Layout} layout @param {ArrayLike<number>} words @returns {Prepared} */
  prepare(calls, layout, words) {
    layout.bindings ??= new LayoutBindings(calls, /** @type {number[][]} */ (layout.sizes), words);
    const widest = this.gpu.adapter.workgroups;
    return new Prepared(layout.bindings, words, ({ kernel }, work) => {
      const { span, ranges = -1 } = this.shaders[Number(kernel)];
      return { count: fold(Math.ceil(work / span), widest), ranges };
    });
  }

  /** Of parameter blocks, since the planner last dropped its plans. */
  get parameterBytes() {
    return this.params.top;
  }

  /** Encodes the step's dispatches. @param {Prepared} step */
  run(step) {
    this.ready(step);
    if (step.numbers.length) this.encode(step, 0, step.numbers.length);
  }

  /**
   * Submits the dispatches in portions, between which the run can be stopped.
   * @param {Prepared} step @param {import('../common/stop.js').Stop} stop
   */
  async runInPortions(step, stop) {
    this.ready(step);
    const encode = (/** @type {number} */ begin, /** @type {number} */ end) => {
      this.encode(step, begin, end);
      this.memory.flush();
    };
    await submitInPortions(step, step.numbers.length, { encode, sent: () => this.gpu.inTime(this.gpu.device.queue.onSubmittedWorkDone(), this.timeout) }, stop);
  }

  /** Times kernels from now on. @param {import('../run/types.js').Timed[]} found receives the times @param {number} repeat how often each runs */
  beginTiming(found, repeat) {
    this.timer = new KernelTimer(this, found, repeat);
  }

  endTiming() {
    this.timer?.release();
    this.timer = null;
  }

  /** @param {Prepared} step @param {number} begin @param {number} end dispatches @param {GPUComputePassDescriptor} [how] @param {number} [repeat] how often each */
  encode(step, begin, end, how, repeat = 1) {
    const { bindings: { groups }, dispatched, numbers, offsets, counts } = step;
    this.locate(step);
    const pass = this.memory.commands().beginComputePass(how);
    for (let i = begin; i < end; i++) {
      pass.setPipeline(this.pipelines[Number(dispatched[i].kernel)]);
      pass.setBindGroup(0, groups[numbers[i]], offsets, i, 1);
      for (let n = 0; n < repeat; n++) pass.dispatchWorkgroups(counts[2 * i], counts[2 * i + 1]);
    }
    pass.end();
  }

  /** Places the step's parameter blocks for the next submission. @param {Prepared} step */
  locate(step) {
    const { bindings, offsets, starts } = step;
    const { offset } = bindings.region(step, this.params, this.memory.submission);
    for (let i = 0; i < starts.length; i++) offsets[i] = offset + starts[i];
  }

  /** Updates the step's bind groups for the present buffers. @param {Prepared} step */
  ready(step) {
    const { bindings, numbers } = step;
    const { memory, borrowed } = this;
    this.locate(step);
    if (bindings.generation !== memory.generation) bindings.groups.fill(null);
    bindings.generation = memory.generation;
    const { ownBuffers } = memory;
    const known = ownBuffers.size === 0 && !borrowed.has(bindings);
    this.regroup(bindings, numbers.filter((n, i) => n !== numbers[i - 1] && (!bindings.groups[n] || !(known || this.isCurrent(bindings, n)))));
  }

  /** Whether group n binds the buffers of this run. @param {LayoutBindings} bindings @param {number} n */
  isCurrent({ calls, own }, n) {
    const bound = own[n];
    return calls[n].buffers.every((buffer, i) => this.memory.ownBuffers.get(buffer) === bound?.[i]);
  }

  /** Sets bind groups, from the cache if it has them. @param {LayoutBindings} bindings @param {number[]} those */
  regroup(bindings, those) {
    const missing = those.flatMap((n) => {
      const { key, shader, ranges } = this.ranges(bindings, n);
      const known = key && this.groups.get(key);
      if (known) bindings.groups[n] = known;
      return known ? [] : [{ n, key, shader, ranges }];
    });
    if (!missing.length) return;
    const labels = missing.map(({ n }) => labelOf(bindings.calls[n]));
    const create = () => missing.forEach(({ n, key, shader, ranges }, i) => {
      const entries = ranges.map((resource, binding) => ({ binding, resource }));
      const layout = this.gpu.layout(shader.buffers).group;
      const group = this.gpu.device.createBindGroup({ layout, entries, label: labels[i] });
      bindings.groups[n] = group;
      if (key) this.groups.cache.set(key, group);
    });
    this.gpu.catchErrors(create, this.memory.pending, labels);
  }

  /**
   * The buffers of a dispatch, and the cache key of its bind group: "" (not cached) with a buffer of the page.
   * @param {LayoutBindings} bindings @param {number} n
   */
  ranges(bindings, n) {
    const { memory, gpu: { tensors } } = this;
    const { calls, addresses, sizes } = bindings;
    const shader = this.shaders[Number(calls[n].kernel)];
    const owners = calls[n].buffers.map((buffer) => memory.ownBuffers.get(buffer));
    const own = owners.flatMap((each) => each ?? []);
    bindings.own[n] = own.length ? owners : null;
    if (own.length) this.borrowed.add(bindings);
    const ranges = owners.map((owner, i) => memory.bound(owner, addresses[n][i], sizes[n][i]));
    if (shader.faults) ranges.push({ buffer: memory.faults, offset: 0, size: FAULT_BYTES });
    ranges.push({ buffer: /** @type {GPUBuffer} */ (this.params.buffer), offset: 0, size: (Math.floor(shader.params / 4) + 1) * 16 });
    const cacheable = own.every(({ buffer }) => tensors.live.has(buffer));
    return { shader, ranges, key: cacheable ? this.groups.key(`${shader.buffers}`, ranges) : '' };
  }

  /** After a run: drops references to the page's buffers, because plans outlive the run. */
  releaseBorrowed() {
    this.memory.ownBuffers.clear();
    for (const bindings of this.borrowed) bindings.release();
    this.borrowed.clear();
  }

  /** The planner has dropped its plans. */
  forget() {
    this.memory.flush();
    this.params.forget();
  }

  release() {
    this.params.release();
    this.groups.cache.clear();
    this.memory.release();
  }
}

/** Workgroups along x and y. @param {number} groups @param {number} most along one axis @returns {[number, number]} */
function fold(groups, most) {
  const rows = Math.ceil(groups / most);
  return [Math.ceil(groups / rows), rows];
}

/** @param {Call} call */
const labelOf = ({ node, kernel }) => `${node} kernel ${kernel}`.trim();
