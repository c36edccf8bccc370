// Runs a Program's GPU steps: shaders, prepared steps, replay. Mirrors providers/webgpu/wgpu_runner.py.

import { submitInPortions } from '../run/portions.js';
import { KernelTimer } from './timer.js';
import { Transfers } from './transfers.js';
import { USAGE } from './flags.js';
import { FAULT_BYTES, GpuMemory } from './memory.js';

/** @typedef {import('./device.js').Gpu} Gpu */
/** @typedef {import('./device.js').Shader} Shader */
/** @typedef {import('../common/program.js').Call} Call */

/** @typedef {{ call: Call, addresses: number[], sizes: number[], params: { buffer: GPUBuffer, offset: number }, apart: (GPUBuffer | null | undefined)[] }} Bound apart: where its tensors lie that are not in the session's memory; null: it has to be made anew */

const SLOT = 256; // parameter blocks are aligned to this

/**
 * A step with its shapes bound: its words (addresses, parameters and work of each call) and the sizes of its buffers,
 * and what was made of them for one generation of the memory.
 */
export class Prepared {
  /** @param {Call[]} calls @param {number[][]} sizes @param {number[]} words */
  constructor(calls, sizes, words) {
    this.calls = calls;
    this.sizes = sizes;
    this.words = words;
    this.generation = -1;
    /** @type {GPUComputePipeline[]} */
    this.pipelines = [];
    /** @type {GPUBindGroup[]} */
    this.groups = [];
    /** Workgroups: x and y of each dispatch. @type {number[]} */
    this.counts = [];
    /** @type {GPUBuffer | null} */
    this.params = null;
    /** What each dispatch is. @type {Call[]} */
    this.dispatched = [];
    /** What each bind group is made of. @type {Bound[]} */
    this.bound = [];
    /** Dispatches of a submission, in a run that may be stopped. */
    this.portion = 1;
  }

  release() {
    this.params?.destroy();
    this.params = null;
    this.generation = -1;
  }
}

/** A Program's shaders, and what errors call them. @param {import('../common/program.js').ProgramData} program */
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

/** Of one Program. */
export class GpuRunner {
  /** @param {Gpu} gpu @param {Shader[]} shaders @param {GPUComputePipeline[]} pipelines */
  constructor(gpu, shaders, pipelines) {
    this.gpu = gpu;
    this.shaders = shaders;
    this.pipelines = pipelines;
    this.memory = new GpuMemory(gpu);
    /** Whether kernels check indices. */
    this.checks = shaders.some(({ faults }) => faults);
    /** @type {Prepared[]} */
    this.prepared = [];
    /** Bind groups of the run in progress with buffers that are not the session's. @type {{ step: Prepared, n: number }[]} */
    this.borrowed = [];
    /** Bytes of parameter blocks since plans were last dropped. */
    this.parameterBytes = 0;
    /** Of a run whose kernels are timed. @type {KernelTimer | null} */
    this.timer = null;
  }

  /** Compiles the shaders. @param {Gpu} gpu @param {import('../common/program.js').ProgramData} program @returns {Promise<GpuRunner>} */
  static async create(gpu, program) {
    const { shaders, labels } = shadersOf(program);
    return new GpuRunner(gpu, shaders, await gpu.compile(shaders, labels));
  }

  /** @param {import('../run/executor.js').Executor} executor */
  transfers(executor) {
    return new Transfers(executor, this);
  }

  /** @param {Call[]} calls @param {number[][]} sizes @param {number[]} words @returns {Prepared} */
  prepare(calls, sizes, words) {
    const made = new Prepared(calls, sizes, words);
    this.prepared.push(made);
    return made;
  }

  /** Encodes the step's dispatches. @param {Prepared} step */
  run(step) {
    this.ready(step);
    if (step.groups.length) this.encode(step, 0, step.groups.length);
  }

  /** Submits them in portions, between which the run may be stopped. @param {Prepared} step @param {import('../common/stop.js').Stop} stop */
  async runInPortions(step, stop) {
    this.ready(step);
    const encode = (/** @type {number} */ begin, /** @type {number} */ end) => {
      this.encode(step, begin, end);
      this.memory.flush();
    };
    await submitInPortions(step, step.groups.length, { encode, sent: () => this.gpu.device.queue.onSubmittedWorkDone() }, stop);
  }

  /** From now on kernels are timed. @param {import('./timer.js').Timed[]} found gets them */
  beginTiming(found) {
    this.timer = new KernelTimer(this, found);
  }

  endTiming() {
    this.timer?.release();
    this.timer = null;
  }

  /** @param {Prepared} step @param {number} begin @param {number} end dispatches @param {GPUComputePassDescriptor} [how] */
  encode({ pipelines, groups, counts }, begin, end, how) {
    const pass = this.memory.commands().beginComputePass(how);
    for (let i = begin; i < end; i++) {
      pass.setPipeline(pipelines[i]);
      pass.setBindGroup(0, groups[i]);
      pass.dispatchWorkgroups(counts[2 * i], counts[2 * i + 1]);
    }
    pass.end();
  }

  /** Its bind groups are for the memory as it is. @param {Prepared} step */
  ready(step) {
    if (step.generation !== this.memory.generation) return this.bind(step);
    const { apart } = this.memory;
    const moved = [...step.bound.keys()].filter((n) => step.bound[n].call.buffers.some((buffer, i) => apart.get(buffer) !== step.bound[n].apart[i]));
    if (!moved.length) return;
    const make = () => moved.forEach((n) => { step.groups[n] = this.group(step, n); });
    this.gpu.catchErrors(make, this.memory.pending, moved.map((n) => labelOf(step.bound[n].call)));
  }

  /** Parameter blocks and bind groups for the memory as it is. @param {Prepared} step */
  bind(step) {
    step.release();
    step.pipelines = [];
    step.groups = [];
    step.counts = [];
    step.dispatched = [];
    step.bound = [];
    const calls = this.unpack(step).filter(({ params }) => params[params.length - 1] > 0);
    step.generation = this.memory.generation;
    if (!calls.length) return;
    /** @type {number[]} */
    const starts = [];
    let end = 0;
    for (const { params } of calls) {
      starts.push(end);
      end += Math.ceil((4 * params.length) / SLOT) * SLOT;
    }
    const buffer = this.parameters(calls.map(({ params }) => params), starts, end);
    step.params = buffer;
    const make = () => calls.forEach((call, n) => this.dispatch(step, call, { buffer, offset: starts[n] }));
    this.gpu.catchErrors(make, this.memory.pending, calls.map(({ call }) => labelOf(call)));
  }

  /** The words of a step, call by call. @param {Prepared} step */
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

  /** @param {number[][]} blocks @param {number[]} starts @param {number} size @returns {GPUBuffer} */
  parameters(blocks, starts, size) {
    const usage = USAGE.UNIFORM | USAGE.COPY_DST;
    const buffer = this.gpu.catchErrors(() => this.gpu.device.createBuffer({ size, usage, mappedAtCreation: true, label: 'parameters' }), this.memory.pending);
    this.parameterBytes += size;
    const words = new Int32Array(buffer.getMappedRange());
    blocks.forEach((block, n) => words.set(block, starts[n] / 4));
    buffer.unmap();
    return buffer;
  }

  /** @param {Prepared} step @param {ReturnType<GpuRunner['unpack']>[number]} call @param {{ buffer: GPUBuffer, offset: number }} params */
  dispatch(step, { call, addresses, sizes, params: words }, params) {
    const shader = this.shaders[Number(call.kernel)];
    const bound = { call, addresses, sizes, params, apart: [] };
    step.bound.push(bound);
    step.groups.push(this.group(step, step.groups.length));
    step.dispatched.push(call);
    step.pipelines.push(this.pipelines[Number(call.kernel)]);
    const groups = Math.ceil(words[words.length - 1] / shader.span);
    const rows = Math.ceil(groups / this.gpu.adapter.workgroups);
    step.counts.push(Math.ceil(groups / rows), rows);
  }

  /** @param {Prepared} step @param {number} n */
  group(step, n) {
    const { memory } = this;
    const { call, addresses, sizes, params } = step.bound[n];
    const shader = this.shaders[Number(call.kernel)];
    step.bound[n].apart = call.buffers.map((buffer) => memory.apart.get(buffer));
    if (step.bound[n].apart.some(Boolean)) this.borrowed.push({ step, n });
    const resources = call.buffers.map((buffer, n) => memory.find(buffer, addresses[n], sizes[n]));
    if (shader.faults) resources.push({ buffer: memory.faults, offset: 0, size: FAULT_BYTES });
    resources.push({ ...params, size: (Math.floor(shader.params / 4) + 1) * 16 });
    const entries = resources.map((resource, binding) => ({ binding, resource }));
    const { group: layout } = this.gpu.layout(shader.buffers);
    return this.gpu.device.createBindGroup({ layout, entries, label: labelOf(call) });
  }

  /** After a run: plans are kept, and would keep what is the page's. */
  giveBack() {
    this.memory.apart.clear();
    for (const { step, n } of this.borrowed.splice(0)) {
      if (!step.bound[n]) continue; // it was released
      step.groups[n] = /** @type {GPUBindGroup} */ (/** @type {unknown} */ (null));
      step.bound[n].apart = step.bound[n].apart.map(() => null);
    }
  }

  /** Plans were dropped. */
  forget() {
    this.memory.flush();
    for (const step of this.prepared.splice(0)) step.release();
    this.parameterBytes = 0;
  }

  release() {
    for (const step of this.prepared.splice(0)) step.release();
    this.memory.release();
  }
}

/** @param {Call} call */
const labelOf = ({ node, kernel }) => `${node} kernel ${kernel}`.trim();
