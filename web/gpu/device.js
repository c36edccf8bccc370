// The GPU of the worker or of the page: adapter, device, compiled pipelines, error scopes. One for all sessions there,
// unless the page gives devices of its own; a lost one is replaced, if it is ours.

import { DeviceLost, ExecutionError, OutOfMemory } from '../common/errors.js';
import { COMPUTE, READ, USAGE } from './flags.js';
import { Moves } from './moves.js';
import { GpuRunner, shadersOf } from './runner.js';
import { setting } from './setting.js';
import { sizeClass } from './sizes.js';
import { GpuTensors } from './tensors.js';

/** @typedef {{ source: string, buffers: number, params: number, span: number, faults?: boolean }} Shader providers/webgpu/printer/loops.py */
/** @typedef {Promise<Error | null>} Caught */
/**
 * What a Program is compiled for.
 * @typedef {{ name: string, software: boolean, f16: boolean, subgroups: boolean, timestamps: boolean, storage_buffers: number,
 *   binding_bytes: number, buffer_bytes: number, workgroups: number, shared_bytes: number, iterations: number }} Description
 */

const FEATURES = /** @type {GPUFeatureName[]} */ (['shader-f16', 'subgroups', 'timestamp-query']);
const LIMITS = /** @type {const} */ (['maxBufferSize', 'maxStorageBufferBindingSize', 'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize', 'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupSizeX', 'maxUniformBufferBindingSize']);

const PIPELINES = 4096; // kept for sessions to come; a session keeps those that it runs

/** @type {Promise<Gpu | null> | null} */
let current = null;

/** Adapters that gave their device. @type {WeakSet<GPUAdapter>} */
const usedAdapters = new WeakSet();
/** Of devices that the page gave. @type {WeakMap<GPUDevice, Gpu>} */
const pageGpus = new WeakMap();

/** The GPU, or null where there is none. @returns {Promise<Gpu | null>} */
export async function acquireGpu() {
  if (setting.device) return gpuOf(setting.device);
  current ??= open();
  const gpu = await current;
  if (gpu && !gpu.lost) return gpu;
  current = null;
  if (!gpu) return null;
  return acquireGpu();
}

/** The GPU if one was acquired before. @returns {Promise<Gpu | null>} */
export const currentGpu = async () => (setting.device ? gpuOf(setting.device) : current);

/** @param {GPUDevice} device of the page @returns {Gpu} */
export function gpuOf(device) {
  const known = pageGpus.get(device);
  if (known) return known;
  const made = new Gpu(device, describe(device), null);
  pageGpus.set(device, made);
  return made;
}

/** @returns {Promise<Gpu | null>} */
async function open() {
  try {
    const chosen = setting.adapter && !usedAdapters.has(setting.adapter) ? setting.adapter : null;
    const adapter = chosen ?? await navigator.gpu?.requestAdapter(setting.adapterOptions);
    if (!adapter) return null;
    usedAdapters.add(adapter);
    const device = await adapter.requestDevice({
      requiredFeatures: FEATURES.filter((name) => adapter.features.has(name)),
      requiredLimits: Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]])),
    });
    return new Gpu(device, describe(device, adapter.info), adapter);
  } catch {
    return null;
  }
}

/** Under the names of providers/webgpu/adapter.py. @param {GPUDevice} device @param {GPUAdapterInfo} [info] @returns {Description} */
function describe(device, info = device.adapterInfo) {
  const { limits, features } = device;
  const name = [info?.vendor, info?.architecture, info?.device, info?.description].filter(Boolean).join(' ');
  return {
    name,
    software: Boolean(info?.isFallbackAdapter) || /swiftshader|llvmpipe|basic render/i.test(name),
    f16: features.has('shader-f16'),
    subgroups: features.has('subgroups') && navigator.gpu.wgslLanguageFeatures.has('subgroup_id'),
    timestamps: features.has('timestamp-query'),
    storage_buffers: limits.maxStorageBuffersPerShaderStage,
    binding_bytes: limits.maxStorageBufferBindingSize,
    buffer_bytes: limits.maxBufferSize,
    workgroups: limits.maxComputeWorkgroupsPerDimension,
    shared_bytes: limits.maxComputeWorkgroupStorageSize,
    iterations: /llvmpipe/i.test(name) ? 65535 : 0,
  };
}

export class Gpu {
  /** @param {GPUDevice} device @param {Description} adapter @param {GPUAdapter | null} source what gave it; null: the page */
  constructor(device, adapter, source) {
    this.device = device;
    this.adapter = adapter;
    this.source = source;
    this.exclusive = setting.exclusive && source !== null;
    this.lost = '';
    /** By source. @type {Map<string, Promise<GPUComputePipeline>>} */
    this.pipelines = new Map();
    /** By number of buffers. @type {Map<number, { group: GPUBindGroupLayout, pipeline: GPUPipelineLayout }>} */
    this.layouts = new Map();
    /** What error scopes will have caught, about memory that no session owns. @type {Caught[]} */
    this.pending = [];
    /** Buffers that are read from, while no run uses them. @type {GPUBuffer[]} */
    this.staging = [];
    this.tensors = new GpuTensors(this);
    this.moves = new Moves(this);
    device.lost.then(({ reason, message }) => {
      this.lost = message || reason || 'unknown';
    });
    if (this.exclusive) device.addEventListener('uncapturederror', (event) => {
      const { error } = /** @type {GPUUncapturedErrorEvent} */ (event);
      this.pending.push(Promise.resolve(new ExecutionError(`WebGPU: ${error.message}`)));
    });
  }

  /** Whether it can be replaced. */
  get replaceable() {
    return this.source !== null;
  }

  /** @param {import('../common/program.js').ProgramData} program */
  load(program) {
    return GpuRunner.create(this, program);
  }

  /** Begins to compile the shaders of a Program that is likely to be loaded. @param {import('../common/program.js').ProgramData} program */
  warm(program) {
    if (!program.header.modules.webgpu) return;
    const { shaders, labels } = shadersOf(program);
    this.compile(shaders, labels).catch(() => {}); // told where it is loaded
  }

  // ── errors ──

  /**
   * What goes wrong in `action` is thrown by the next `throwErrors` of the same list.
   * @template T @param {() => T} action @param {Caught[]} [pending]
   * @param {string[]} [labels] of what it makes: an error tells the one it is about @returns {T}
   */
  catchErrors(action, pending = this.pending, labels = []) {
    const { device } = this;
    device.pushErrorScope('out-of-memory');
    device.pushErrorScope('validation');
    const made = action();
    const refused = device.popErrorScope().catch(() => null);
    const full = device.popErrorScope().catch(() => null);
    pending.push(refused.then((error) => error && refusal(error.message, labels.find((label) => error.message.includes(label)))));
    pending.push(full.then((error) => error && outOfMemory(error.message)));
    return made;
  }

  /** Throws what error scopes have caught, memory first: the rest often follows from it. @param {Caught[]} [pending] a session's own */
  async throwErrors(pending = []) {
    const all = [...pending.splice(0), ...this.pending.splice(0)];
    const caught = (await Promise.all(all)).filter((error) => error !== null);
    this.throwIfLost();
    if (caught.length) throw caught.find((error) => error instanceof OutOfMemory) ?? caught[0];
  }

  /** Waits for all that was asked of the device, and forgets what went wrong in it but that its memory was full. */
  async settle() {
    if (this.lost) return;
    await this.device.queue.onSubmittedWorkDone().catch(() => {});
    const caught = await Promise.all(this.pending.splice(0));
    this.pending.push(...caught.filter((error) => error instanceof OutOfMemory).map((error) => Promise.resolve(error)));
  }

  throwIfLost() {
    if (!this.lost) return;
    const hint = this.replaceable ? '' : 'create the session again, on another GPUDevice';
    throw new DeviceLost(`the GPU device is lost: ${this.lost}`, { hint });
  }

  /** What the page does to its buffers meanwhile shows here. @param {GPUCommandEncoder} encoder @param {Caught[]} [pending] */
  submit(encoder, pending = this.pending) {
    const submit = () => this.device.queue.submit([encoder.finish()]);
    if (this.exclusive) submit();
    else this.catchErrors(submit, pending);
  }

  // ── pipelines ──

  /**
   * Compiled in parallel; equal sources once, as long as PIPELINES reach.
   * @param {Shader[]} shaders @param {string[]} labels node and kernel of each
   * @returns {Promise<GPUComputePipeline[]>}
   */
  async compile(shaders, labels) {
    const all = shaders.map((shader, n) => {
      const known = this.pipelines.get(shader.source);
      if (known) return known;
      const made = this.pipeline(shader, labels[n]);
      this.pipelines.set(shader.source, made);
      if (this.pipelines.size > PIPELINES) this.pipelines.delete([...this.pipelines.keys()][0]);
      made.catch(() => this.pipelines.delete(shader.source));
      return made;
    });
    const failed = (await Promise.allSettled(all)).find((result) => result.status === 'rejected');
    if (failed) throw failed.reason;
    return Promise.all(all);
  }

  /** @param {Shader} shader @param {string} label @returns {Promise<GPUComputePipeline>} */
  async pipeline({ source, buffers }, label) {
    const { device } = this;
    device.pushErrorScope('validation');
    const module = device.createShaderModule({ code: source, label });
    const scope = device.popErrorScope();
    const compute = { module, entryPoint: 'main' };
    try {
      return await device.createComputePipelineAsync({ layout: this.layout(buffers).pipeline, compute, label });
    } catch (cause) {
      const error = await scope.catch(() => null);
      this.throwIfLost();
      throw refusal((error ?? /** @type {Error} */ (cause)).message, label, cause);
    }
  }

  /** Storage buffers, then the parameter block. @param {number} buffers */
  layout(buffers) {
    const known = this.layouts.get(buffers);
    if (known) return known;
    const types = /** @type {GPUBufferBindingType[]} */ ([...new Array(buffers).fill('storage'), 'uniform']);
    const entries = types.map((type, binding) => ({ binding, visibility: COMPUTE, buffer: { type, hasDynamicOffset: type === 'uniform' } }));
    const group = this.device.createBindGroupLayout({ entries });
    const made = { group, pipeline: this.device.createPipelineLayout({ bindGroupLayouts: [group] }) };
    this.layouts.set(buffers, made);
    return made;
  }

  // ── reading ──

  /**
   * Bytes that `copy` has put into the buffer it is pageGpus; waits for the GPU.
   * @param {number} size @param {(staging: GPUBuffer) => void} copy encodes and submits
   * @param {(bytes: ArrayBuffer) => void} use @param {Caught[]} [pending] what error scopes caught of who asks
   */
  async read(size, copy, use, pending = this.pending) {
    const staging = this.takeStaging(size);
    copy(staging);
    try {
      await staging.mapAsync(READ, 0, size);
    } catch (cause) {
      await Promise.race([this.device.lost, new Promise((resolve) => setTimeout(resolve, 1000))]);
      await this.throwErrors(pending);
      throw new DeviceLost(`the GPU gave no results: ${/** @type {Error} */ (cause).message}`, { cause });
    }
    try {
      if (pending.length || this.pending.length) await this.throwErrors(pending); // the copy may have failed
      use(staging.getMappedRange(0, size));
    } finally {
      staging.unmap();
      this.staging.push(staging);
    }
  }

  /** @param {number} size @returns {GPUBuffer} */
  takeStaging(size) {
    const fit = this.staging.findIndex((buffer) => buffer.size >= size && buffer.size <= 4 * size + 65536);
    if (fit >= 0) return this.staging.splice(fit, 1)[0];
    const usage = USAGE.MAP_READ | USAGE.COPY_DST;
    return this.catchErrors(() => this.device.createBuffer({ size: sizeClass(size), usage, label: 'readback' }));
  }

  /** Gives up what is only kept for later. */
  freePools() {
    for (const buffer of this.staging.splice(0)) buffer.destroy();
    this.tensors.freePool();
  }
}

/** @param {string} message @param {string} [node] @param {unknown} [cause] */
const refusal = (message, node = '', cause = undefined) => new ExecutionError(`WebGPU refused this kernel: ${message}`, { node, cause });

/** @param {string} message @returns {OutOfMemory} */
export function outOfMemory(message) {
  const error = new OutOfMemory(`the GPU has no memory left: ${message}`, { hint: 'release sessions, use smaller inputs or the provider "wasm"' });
  return Object.assign(error, { gpu: true });
}
