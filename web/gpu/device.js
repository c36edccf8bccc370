// The GPU of the worker or of the page: adapter, device, compiled pipelines, error scopes. All sessions of a thread
// share it, unless the page sets its own GPUDevice. A lost device is replaced if the engine created it.

import { DeviceLost, ExecutionError, OutOfMemory } from '../common/errors.js';
import { COMPUTE, READ, USAGE } from './flags.js';
import { GpuRunner, shadersOf } from './runner.js';
import { setting } from './setting.js';
import { sizeClass } from './sizes.js';
import { GpuTensors } from './tensors.js';
import { isInTime, Watchdog } from './watchdog.js';

/** @import { Caught, Description, Device, Shader } from './types.js' */

const FEATURES = /** @type {GPUFeatureName[]} */ (['shader-f16', 'subgroups', 'timestamp-query']);
const LIMITS = /** @type {const} */ (['maxBufferSize', 'maxStorageBufferBindingSize', 'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize', 'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupSizeX', 'maxUniformBufferBindingSize']);

/** The label of a session's commands and buffers (`GpuMemory.label`). */
const MARK = /pyruntime session (\d+)(?: attempt (\d+))?/;

const PIPELINES = 4096; // cached for later sessions; a session references the pipelines that it runs

/** @type {Promise<Gpu | null> | null} */
let current = null;

/** Why there is no GPU, after `acquireGpu` returned null. */
export let whyNoGpu = '';

/** Adapters that cannot give another device. @type {WeakSet<GPUAdapter>} */
const usedAdapters = new WeakSet();
/** Adapters of the page's own devices. @type {WeakMap<GPUDevice, Gpu>} */
const pageGpus = new WeakMap();

/**
 * The GPU; null without an adapter or a device, or if the browser does not answer in time.
 * @param {number | undefined} seconds to wait @returns {Promise<Gpu | null>}
 */
export async function acquireGpu(seconds = Infinity) {
  if (setting.device) return gpuOf(setting.device);
  const asked = current ??= open();
  const inTime = await isInTime(asked, seconds);
  const gpu = inTime ? await asked : null;
  if (gpu && !gpu.lost) return gpu;
  if (current === asked) current = null; // the next session asks again
  if (gpu) return acquireGpu(seconds);
  if (!inTime) {
    whyNoGpu = `the browser has not answered the request for a WebGPU device within ${seconds} s (gpuTimeout sets the limit)`;
    asked.then(() => { current ??= asked; });
  }
  return null;
}

/** The GPU if it was acquired before. @returns {Promise<Gpu | null>} */
export const currentGpu = async () => (setting.device ? gpuOf(setting.device) : Promise.race([current, null]));

/** @param {GPUDevice} device of the page @returns {Gpu} */
export function gpuOf(device) {
  const known = pageGpus.get(device);
  if (known) return known;
  const gpu = new Gpu(device, describe(device), null);
  pageGpus.set(device, gpu);
  return gpu;
}

/** @returns {Promise<Gpu | null>} */
async function open() {
  whyNoGpu = 'this browser has no WebGPU adapter';
  try {
    const chosen = setting.adapter && !usedAdapters.has(setting.adapter) ? setting.adapter : null;
    const adapter = chosen ?? await navigator.gpu?.requestAdapter(setting.adapterOptions);
    if (!adapter) return null;
    usedAdapters.add(adapter);
    const device = await deviceOf(adapter);
    return new Gpu(device, describe(device, adapter.info, adapter), adapter);
  } catch (error) {
    whyNoGpu = `the browser refuses a WebGPU device: ${/** @type {Error} */ (error).message}`;
    return null;
  }
}

/**
 * A device with all that the adapter offers. Some adapters refuse features or limits that they list: then without these.
 * @param {GPUAdapter} adapter @returns {Promise<GPUDevice>}
 */
async function deviceOf(adapter) {
  const requiredFeatures = FEATURES.filter((name) => adapter.features.has(name));
  const requiredLimits = Object.fromEntries(LIMITS.flatMap((name) => adapter.limits[name] === undefined ? [] : [[name, adapter.limits[name]]]));
  /** @type {unknown} */
  let first;
  for (const wanted of [{ requiredFeatures, requiredLimits }, { requiredLimits }, { requiredFeatures }, {}]) {
    try {
      return await adapter.requestDevice(wanted);
    } catch (error) {
      first ??= error;
    }
  }
  throw first;
}

/** Names of adapters that compute on the CPU; Microsoft's WARP is the "Basic Render Driver". */
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|softpipe|warp|basic render/i;

/**
 * Named as in providers/webgpu/adapter.py.
 * @param {GPUDevice} device @param {GPUAdapterInfo} [info] @param {GPUAdapter & { isFallbackAdapter?: boolean }} [adapter] older browsers have that property there
 * @returns {Description}
 */
function describe(device, info = device.adapterInfo, adapter) {
  const { limits, features } = device;
  const name = [info?.vendor, info?.architecture, info?.device, info?.description].filter(Boolean).join(' ');
  return {
    name,
    software: Boolean(info?.isFallbackAdapter || adapter?.isFallbackAdapter) || SOFTWARE.test(name),
    f16: features.has('shader-f16'),
    subgroups: features.has('subgroups') && Boolean(navigator.gpu.wgslLanguageFeatures?.has('subgroup_id')),
    dot4: navigator.gpu.wgslLanguageFeatures?.has('packed_4x8_integer_dot_product') ?? false,
    timestamps: features.has('timestamp-query'),
    storage_buffers: limits.maxStorageBuffersPerShaderStage,
    binding_bytes: limits.maxStorageBufferBindingSize,
    buffer_bytes: limits.maxBufferSize,
    workgroups: limits.maxComputeWorkgroupsPerDimension,
    shared_bytes: limits.maxComputeWorkgroupStorageSize,
    iterations: /llvmpipe/i.test(name) ? 65535 : 0,
  };
}

/** @implements {Device} */
export class Gpu {
  /** @param {GPUDevice} device @param {Description} adapter @param {GPUAdapter | null} source null: the device is the page's own */
  constructor(device, adapter, source) {
    this.device = device;
    this.adapter = adapter;
    this.source = source;
    this.exclusive = setting.exclusive && source !== null;
    this.lost = '';
    /** By WGSL source. @type {Map<string, Promise<GPUComputePipeline>>} */
    this.pipelines = new Map();
    /** By number of buffers. @type {Map<number, { group: GPUBindGroupLayout, pipeline: GPUPipelineLayout }>} */
    this.layouts = new Map();
    /** Results of error scopes, for memory that no session owns. @type {Caught[]} */
    this.pending = [];
    /** Memories of sessions, by number. @type {Map<number, { attempt: number, pending: Caught[] }>} */
    this.memories = new Map();
    /** Unused buffers for readback. @type {GPUBuffer[]} */
    this.staging = [];
    this.tensors = new GpuTensors(this);
    const parts = setting.tensorParts?.(this);
    /** Unused in the worker. */
    this.moves = /** @type {import('./moves.js').Moves} */ (parts?.moves);
    this.rooms = parts?.rooms ?? null;
    this.cachesFor = parts?.cachesFor;
    device.lost.then(({ reason, message }) => {
      this.lost ||= message || reason || 'unknown';
      this.tensors.lose();
    });
    if (this.exclusive) device.addEventListener('uncapturederror', (event) => {
      const { error: { message } } = /** @type {GPUUncapturedErrorEvent} */ (event);
      this.pendingOf(message)?.push(Promise.resolve(new ExecutionError(`WebGPU: ${message}`)));
    });
  }

  /**
   * The list of errors of the session whose commands or buffers a message names. Undefined if these are of a run that has failed, or
   * of a session that was released. @param {string} message
   */
  pendingOf(message) {
    const [, number, attempt] = MARK.exec(message) ?? [];
    if (!number) return this.pending;
    const memory = this.memories.get(Number(number));
    return attempt && Number(attempt) !== memory?.attempt ? undefined : memory?.pending;
  }

  /** Whether a lost device can be replaced: the engine created it. */
  get replaceable() {
    return this.source !== null;
  }

  /** @param {import('../common/program.js').ProgramData} program @param {number} [timeout] seconds to wait for the device */
  load(program, timeout = Infinity) {
    return GpuRunner.create(this, program, timeout);
  }

  /**
   * Begins to compile the shaders of a Program that is likely to be loaded.
   * @param {import('../common/program.js').ProgramData} program
   */
  warm(program) {
    if (!program.header.modules.webgpu) return;
    const { shaders, labels } = shadersOf(program);
    this.compile(shaders, labels).catch(() => {}); // `load` throws it
  }

  // ── errors ──

  /**
   * Runs an action in error scopes. The next `throwErrors` of the same list throws its errors.
   * @template T @param {() => T} action @param {Caught[]} [pending]
   * @param {string[]} [labels] of the objects that it creates: an error names the one that failed @returns {T}
   */
  catchErrors(action, pending = this.pending, labels = []) {
    const { device } = this;
    device.pushErrorScope('out-of-memory');
    device.pushErrorScope('validation');
    const result = action();
    const refused = device.popErrorScope().catch(() => null);
    const full = device.popErrorScope().catch(() => null);
    const labelIn = (/** @type {string} */ message) => labels.find((label) => message.includes(label));
    pending.push(refused.then((error) => error && refusedObject(error.message, labelIn(error.message))));
    pending.push(full.then((error) => error && outOfMemory(error.message)));
    return result;
  }

  /**
   * Waits for error scopes and throws an error that they caught; a lack of memory first, because it often causes the
   * others. @param {Caught[]} [pending] those of a session
   */
  async throwErrors(pending = []) {
    const all = [...pending.splice(0), ...this.pending.splice(0)];
    const caught = (await Promise.all(all)).filter((error) => error !== null);
    this.throwIfLost();
    if (caught.length) throw caught.find((error) => error instanceof OutOfMemory) ?? caught[0];
  }

  /** Waits for all submitted work. Discards its errors, except those of full memory. */
  async settle() {
    if (this.lost) return;
    await this.device.queue.onSubmittedWorkDone().catch(() => {});
    const caught = await Promise.all(this.pending.splice(0));
    const full = caught.filter((error) => error instanceof OutOfMemory);
    this.pending.push(...full.map((error) => Promise.resolve(error)));
  }

  throwIfLost() {
    if (!this.lost) return;
    const hint = this.replaceable ? '' : 'create the session again, on another GPUDevice';
    throw new DeviceLost(`the GPU device is lost: ${this.lost}`, { hint });
  }

  /**
   * Submits commands. It fails, for example, if the page has destroyed buffers that they use.
   * @param {GPUCommandEncoder} encoder @param {Caught[]} [pending]
   */
  submit(encoder, pending = this.pending) {
    const submit = () => this.device.queue.submit([encoder.finish()]);
    if (this.exclusive) return submit();
    this.catchErrors(submit, pending);
    for (const caught of pending.slice(-2)) caught.isOfCommands = true;
  }

  // ── pipelines ──

  /**
   * Compiles shaders in parallel; from a cache of PIPELINES by source. Throws the error of the first that the driver refuses, or does
   * not compile in time; the others are in `shaders` of the error, by number.
   * @param {Shader[]} shaders @param {string[]} labels node and kernel of each @param {number} [seconds] without progress
   * @returns {Promise<GPUComputePipeline[]>}
   */
  async compile(shaders, labels, seconds = Infinity) {
    const all = shaders.map((shader, n) => {
      const known = this.pipelines.get(shader.source);
      if (known) return known;
      const pipeline = this.pipeline(shader, labels[n]);
      this.pipelines.set(shader.source, pipeline);
      if (this.pipelines.size > PIPELINES) this.pipelines.delete([...this.pipelines.keys()][0]);
      pipeline.catch(() => this.pipelines.delete(shader.source));
      return pipeline;
    });
    const failed = await failures(all, labels, seconds);
    for (const [n, error] of failed) {
      this.pipelines.delete(shaders[n].source);
      if (!(error instanceof ExecutionError)) throw error;
    }
    if (failed.size) throw Object.assign(/** @type {Error} */ ([...failed.values()][0]), { shaders: failed });
    return Promise.all(all);
  }

  /** @param {Shader} shader @param {string} label @returns {Promise<GPUComputePipeline>} */
  pipeline({ source, buffers }, label) {
    return this.compiled(source, this.layout(buffers).pipeline, label, (text, cause) => refusal(text, label, cause));
  }

  /**
   * The pipeline of a shader of the engine that belongs to no node. If the driver refuses it, recovery moves all nodes.
   * @param {string} code @param {GPUPipelineLayout | 'auto'} layout @param {string} label
   */
  helper(code, layout, label) {
    return this.compiled(code, layout, label, (text, cause) => (
      Object.assign(new ExecutionError(`WebGPU refused the shader "${label}": ${text}`, { cause }), { atFault: {} })));
  }

  /**
   * @param {string} code @param {GPUPipelineLayout | 'auto'} layout @param {string} label
   * @param {(text: string, cause: unknown) => Error} refused the error if the driver refuses it @returns {Promise<GPUComputePipeline>}
   */
  async compiled(code, layout, label, refused) {
    const { device } = this;
    device.pushErrorScope('validation');
    const module = device.createShaderModule({ code, label });
    const scope = device.popErrorScope();
    try {
      return await device.createComputePipelineAsync({ layout, compute: { module, entryPoint: 'main' }, label });
    } catch (cause) {
      const error = await scope.catch(() => null);
      this.throwIfLost();
      throw refused((error ?? /** @type {Error} */ (cause)).message, cause);
    }
  }

  /** The layout of storage buffers and, last, the parameter block. @param {number} buffers */
  layout(buffers) {
    const known = this.layouts.get(buffers);
    if (known) return known;
    const types = /** @type {GPUBufferBindingType[]} */ ([...new Array(buffers).fill('storage'), 'uniform']);
    const entries = types.map((type, binding) => (
      { binding, visibility: COMPUTE, buffer: { type, hasDynamicOffset: type === 'uniform' } }));
    const group = this.device.createBindGroupLayout({ entries });
    const layout = { group, pipeline: this.device.createPipelineLayout({ bindGroupLayouts: [group] }) };
    this.layouts.set(buffers, layout);
    return layout;
  }

  // ── reading ──

  /**
   * Reads bytes through a staging buffer; waits for the GPU.
   * @param {number} size @param {(staging: GPUBuffer) => void} copy encodes and submits the copy to it
   * @param {(bytes: ArrayBuffer) => void} use @param {Caught[]} [pending] the caller's error scopes
   * @param {number} [seconds] to wait; then the device counts as lost
   */
  async read(size, copy, use, pending = this.pending, seconds = Infinity) {
    const staging = this.takeStaging(size);
    copy(staging);
    try {
      const mapped = staging.mapAsync(READ, 0, size);
      await this.inTime(mapped, seconds);
      await mapped;
    } catch (cause) {
      if (cause instanceof DeviceLost) throw cause;
      await Promise.race([this.device.lost, new Promise((resolve) => setTimeout(resolve, 1000))]);
      await this.throwErrors(pending);
      throw new DeviceLost(`cannot read results from the GPU: ${/** @type {Error} */ (cause).message}`, { cause });
    }
    try {
      if (pending.length || this.pending.length) await this.throwErrors(pending); // errors of the copy to the staging buffer
      use(staging.getMappedRange(0, size));
    } finally {
      staging.unmap();
      this.staging.push(staging);
    }
  }

  /** Waits until a promise settles. Gives the device up if it does not in time. @param {Promise<unknown>} promise @param {number} seconds */
  async inTime(promise, seconds) {
    if (await isInTime(promise, seconds)) return;
    const text = `the GPU has not answered within ${seconds} s`;
    if (this.replaceable) {
      this.lost ||= text; // work that hangs cannot be removed from the queue
      this.device.destroy();
    }
    throw Object.assign(new DeviceLost(text, { hint: 'gpuTimeout sets the limit' }), { isLate: true });
  }

  /** @param {number} size @returns {GPUBuffer} */
  takeStaging(size) {
    const fit = this.staging.findIndex((buffer) => buffer.size >= size && buffer.size <= 4 * size + 65536);
    if (fit >= 0) return this.staging.splice(fit, 1)[0];
    const usage = USAGE.MAP_READ | USAGE.COPY_DST;
    return this.catchErrors(() => this.device.createBuffer({ size: sizeClass(size), usage, label: 'readback' }));
  }

  /** Frees pooled buffers. */
  freePools() {
    for (const buffer of this.staging.splice(0)) buffer.destroy();
    this.tensors.freePool();
  }
}

/** The error for an object that the GPU refuses; recovery moves its node. @param {string} message @param {string} [label] node and kernel */
function refusedObject(message, label) {
  const error = refusal(message, label);
  return label ? Object.assign(error, { atFault: { [label.replace(/ ?kernel \S+$/, '')]: error.detail.replace(/\s+/g, ' ').trim() } }) : error;
}

/** @param {string} message @param {string} [node] @param {unknown} [cause] */
const refusal = (message, node = '', cause = undefined) => new ExecutionError(`WebGPU refused this kernel: ${message}`, { node, cause });

/**
 * Waits for pipelines. The errors of those that failed, or that are not ready when none has become ready for a while.
 * @param {Promise<GPUComputePipeline>[]} all @param {string[]} labels @param {number} seconds @returns {Promise<Map<number, unknown>>} by number
 */
async function failures(all, labels, seconds) {
  const watchdog = new Watchdog(seconds);
  const pending = new Set(all.keys());
  /** @type {Map<number, unknown>} */
  const failed = new Map();
  const settled = all.map((pipeline, n) => pipeline.catch((error) => failed.set(n, error)).then(() => {
    pending.delete(n);
    watchdog.progress();
  }));
  const isLate = await Promise.race([Promise.all(settled).then(() => false), watchdog.expired]);
  watchdog.end();
  const late = (/** @type {string} */ label) => new ExecutionError(`the driver has not compiled this kernel within ${seconds} s`, { node: label, hint: 'gpuTimeout sets the limit' });
  if (isLate) for (const n of pending) failed.set(n, late(labels[n]));
  return failed;
}

/** @param {string} message @returns {OutOfMemory} */
export function outOfMemory(message) {
  const hint = 'release sessions, use smaller inputs or the provider "wasm"';
  const error = new OutOfMemory(`the GPU has no memory left: ${message}`, { hint });
  return Object.assign(error, { gpu: true });
}
