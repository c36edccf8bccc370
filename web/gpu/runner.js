// Runs the GPU steps of a Program. Mirrors providers/webgpu/wgpu_runner.py.

import { submitInPortions } from '../run/portions.js';
import { KernelTimer } from './timer.js';
import { Transfers } from './transfers.js';
import { BindGroups, Parameters } from './bindings.js';
import { FAULT_BYTES, GpuMemory } from './memory.js';
import { Prepared } from './prepared.js';

/** @import { Call } from '../common/program.js' */
/** @import { Bound } from './prepared.js' */
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
    this.groups = new BindGroups(this.memory);
    /** Whether kernels check indices. */
    this.checks = shaders.some(({ faults }) => faults);
    /** Dispatches of this run that bind buffers of other owners. @type {{ step: Prepared, n: number }[]} */
    this.borrowed = [];
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

  /** @param {Call[]} calls @param {number[][]} sizes @param {Iterable<number>} words @returns {Prepared} */
  prepare(calls, sizes, words) {
    return new Prepared(calls, sizes, [...words]);
  }

  /** Of parameter blocks, since the planner last dropped its plans. */
  get parameterBytes() {
    return this.params.top;
  }

  /** Encodes the step's dispatches. @param {Prepared} step */
  run(step) {
    this.ready(step);
    if (step.groups.length) this.encode(step, 0, step.groups.length);
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
    await submitInPortions(step, step.groups.length, { encode, sent: () => this.gpu.inTime(this.gpu.device.queue.onSubmittedWorkDone(), this.timeout) }, stop);
  }

  /** Times kernels from now on. @param {import('../run/types.js').Timed[]} found receives the times */
  beginTiming(found) {
    this.timer = new KernelTimer(this, found);
  }

  endTiming() {
    this.timer?.release();
    this.timer = null;
  }

  /** @param {Prepared} step @param {number} begin @param {number} end dispatches @param {GPUComputePassDescriptor} [how] */
  encode({ pipelines, groups, offsets, counts }, begin, end, how) {
    const pass = this.memory.commands().beginComputePass(how);
    for (let i = begin; i < end; i++) {
      pass.setPipeline(pipelines[i]);
      pass.setBindGroup(0, groups[i], offsets, i, 1);
      pass.dispatchWorkgroups(counts[2 * i], counts[2 * i + 1]);
    }
    pass.end();
  }

  /** Updates the step's bind groups for the present buffers. @param {Prepared} step */
  ready(step) {
    if (step.generation !== this.memory.generation || step.epoch !== this.params.epoch) return this.bind(step);
    const { ownBuffers } = this.memory;
    const hasChanged = (/** @type {Bound} */ bound) => (
      bound.call.buffers.some((buffer, i) => ownBuffers.get(buffer) !== bound.ownBuffers[i]));
    this.regroup(step, [...step.bound.keys()].filter((n) => hasChanged(step.bound[n])));
  }

  /** Makes parameter blocks and bind groups for the present buffers. @param {Prepared} step */
  bind(step) {
    const calls = this.unpack(step).filter(({ params }) => params[params.length - 1] > 0);
    const widest = this.gpu.adapter.workgroups;
    step.bound = calls.map(({ call, addresses, sizes }) => ({ call, addresses, sizes, ownBuffers: [] }));
    step.dispatched = calls.map(({ call }) => call);
    step.pipelines = calls.map(({ call }) => this.pipelines[Number(call.kernel)]);
    const span = (/** @type {Call} */ call) => this.shaders[Number(call.kernel)].span;
    step.counts = calls.flatMap(({ call, params }) => fold(Math.ceil(params[params.length - 1] / span(call)), widest));
    step.groups = [];
    if (calls.length && step.epoch !== this.params.epoch) step.offsets = this.params.put(calls.map(({ params }) => params));
    step.generation = this.memory.generation;
    step.epoch = this.params.epoch;
    this.regroup(step, [...calls.keys()]);
  }

  /** Splits the words of a step by call. @param {Prepared} step */
  unpack({ calls, sizes, words }) {
    let at = 0;
    return calls.map((call, n) => {
      const middle = at + call.buffers.length;
      const end = middle + call.params.length + 1;
      const unpacked = { call, addresses: words.slice(at, middle), sizes: sizes[n], params: words.slice(middle, end) };
      at = end;
      return unpacked;
    });
  }

  /** Sets the bind groups of dispatches, from the cache if it has them. @param {Prepared} step @param {number[]} those */
  regroup(step, those) {
    const missing = those.flatMap((n) => {
      const { key, shader, ranges } = this.ranges(step, n);
      const known = key && this.groups.get(key);
      if (known) step.groups[n] = known;
      return known ? [] : [{ n, key, shader, ranges }];
    });
    if (!missing.length) return;
    const create = () => missing.forEach(({ n, key, shader, ranges }) => {
      const entries = ranges.map((resource, binding) => ({ binding, resource }));
      const layout = this.gpu.layout(shader.buffers).group;
      step.groups[n] = this.gpu.device.createBindGroup({ layout, entries, label: labelOf(step.dispatched[n]) });
      if (key) this.groups.cache.set(key, step.groups[n]);
    });
    this.gpu.catchErrors(create, this.memory.pending, missing.map(({ n }) => labelOf(step.dispatched[n])));
  }

  /**
   * The buffers of a dispatch, and the cache key of its bind group: "" (not cached) with a buffer of the page.
   * @param {Prepared} step @param {number} n
   */
  ranges(step, n) {
    const { memory, gpu: { tensors } } = this;
    const bound = step.bound[n];
    const { call, addresses, sizes } = bound;
    const shader = this.shaders[Number(call.kernel)];
    bound.ownBuffers = call.buffers.map((buffer) => memory.ownBuffers.get(buffer));
    const own = bound.ownBuffers.flatMap((each) => each ?? []);
    if (own.length) this.borrowed.push({ step, n });
    const ranges = call.buffers.map((_, i) => memory.bound(bound.ownBuffers[i], addresses[i], sizes[i]));
    if (shader.faults) ranges.push({ buffer: memory.faults, offset: 0, size: FAULT_BYTES });
    ranges.push({ buffer: /** @type {GPUBuffer} */ (this.params.buffer), offset: 0, size: (Math.floor(shader.params / 4) + 1) * 16 });
    const cacheable = own.every(({ buffer }) => tensors.live.has(buffer));
    return { shader, ranges, key: cacheable ? this.groups.key(`${shader.buffers}`, ranges) : '' };
  }

  /** After a run: drops references to the page's buffers, because plans outlive the run. */
  releaseBorrowed() {
    this.memory.ownBuffers.clear();
    for (const { step, n } of this.borrowed.splice(0)) {
      if (!step.bound[n]) continue; // the step was bound again, with fewer dispatches
      step.groups[n] = /** @type {GPUBindGroup} */ (/** @type {unknown} */ (null));
      step.bound[n].ownBuffers = step.bound[n].ownBuffers.map(() => null);
    }
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

/** Workgroups along x and y. @param {number} groups @param {number} most along one axis */
function fold(groups, most) {
  const rows = Math.ceil(groups / most);
  return [Math.ceil(groups / rows), rows];
}

/** @param {Call} call */
const labelOf = ({ node, kernel }) => `${node} kernel ${kernel}`.trim();
