// A session on the page's GPU: the worker compiles its model, the page runs it (docs/design/gpu.md#gpu-of-the-page).

import { pageThreads } from '../engine/client.js';
import { SessionFailed } from '../../common/errors.js';
import { mapTensors, mapValues } from '../../common/records.js';
import { hasSharedMemory } from '../../common/shared_memory.js';
import { Stop } from '../../common/stop.js';
import { Model } from '../../session/model.js';
import { prepare } from '../../session/prepare.js';
import { ThreadPool } from '../../threads/pool.js';
import { timeline } from '../../session/timeline.js';
import { verify } from '../../session/verify.js';
import { RemoteCompiler } from './remote_compiler.js';
import { wireOf } from '../tensors/gpu_tensors.js';

/** @import { Caller, CreateResult, Fetch, RunResult, WireTensor, WireValue } from '../../common/protocol.js' */
/** @import { Tensor } from 'onnxruntime-common' */
/** @typedef {ReturnType<typeof import('../options/options.js').sessionOptions>} Settings */
/** @typedef {Record<string, Tensor | Tensor[] | null>} Feeds */

/** @type {Set<Feeds>} */
const inUse = new Set();

export class GpuSession {
  /** @param {Model} model @param {Settings['preferred']} preferred where outputs stay */
  constructor(model, preferred) {
    this.model = model;
    this.preferred = preferred;
    /** Runs execute one after the other. @type {Promise<unknown>} */
    this.queue = Promise.resolve();
  }

  /**
   * Opens a session; it is ready to run.
   * @param {import('../../common/protocol.js').Caller} caller @param {CreateResult} created @param {import('../../gpu/device.js').Gpu} gpu
   * @param {Settings} settings
   * @param {import('../engine/cancellation.js').Cancellation | null} [cancellation] of the creation
   */
  static async open(caller, { session, threads, compiled }, gpu, { params: { logOptions, limits: { memoryLimit, gpuTimeout }, options, fallback }, preferred }, cancellation = null) {
    const compiler = new RemoteCompiler(caller, session, /** @type {import('../../common/protocol.js').Compiled} */ (compiled));
    const { executionProviders: named } = options;
    const host = { shared: compiled?.shared ?? hasSharedMemory(), threads, pool: pageThreads(ThreadPool), gpu, named, fallback, gpuTimeout, logOptions, memoryLimit };
    const model = new Model(compiler, (program) => compiler.weights(program), host);
    try {
      await stoppable(cancellation, (stop) => model.start(stop));
    } catch (error) {
      model.release();
      throw error;
    }
    return new GpuSession(model, preferred);
  }

  get gpu() {
    return this.model.host.gpu ?? this.model.leftGpu;
  }

  /** @template T @param {() => Promise<T>} action @returns {Promise<T>} */
  enqueue(action) {
    const done = this.queue.then(action);
    this.queue = done.catch(() => {});
    return done;
  }

  /** Enqueues work on feeds. A tensor that were collected meanwhile would lose its buffer. @template T @param {Feeds} feeds @param {() => Promise<T>} action */
  async kept(feeds, action) {
    inUse.add(feeds);
    try {
      return await this.enqueue(action);
    } finally {
      inUse.delete(feeds);
    }
  }

  /**
   * @param {Feeds} feeds @param {Record<string, Tensor | null>} fetches tensors to fill; null: a new one
   * @param {import('../engine/cancellation.js').Cancellation | null} cancellation @param {boolean} isTimed whether to time its kernels
   * @returns {Promise<RunResult>}
   */
  run(feeds, fetches, cancellation, isTimed) {
    const targets = mapValues(fetches, (into, name) => (into ? target(into) : this.location(name)));
    const copies = wires(feeds);
    return this.kept(feeds, () => stoppable(cancellation, async (stop) => {
      const start = performance.now();
      const outputs = await this.model.run(copies, targets, stop, isTimed ? this.model.timed : undefined);
      return { outputs, milliseconds: performance.now() - start, kernels: this.model.kernels };
    }));
  }

  /** Where a new output goes. @param {string} name @returns {Fetch} */
  location(name) {
    if (this.model.outputs.find((output) => output.name === name)?.classes) return null; // becomes maps
    const where = typeof this.preferred === 'string' ? this.preferred : this.preferred?.[name];
    return where === 'gpu-buffer' ? 'gpu' : null;
  }

  /**
   * Frees outputs on the GPU that the caller does not get, except tensors to fill, which belong to the page.
   * @param {Record<string, WireValue>} outputs @param {Record<string, unknown>} fetches
   */
  drop(outputs, fetches) {
    for (const tensor of Object.entries(outputs).filter(([name]) => !fetches[name]).flatMap(([, value]) => value)) {
      const data = tensor?.data;
      if (data && 'gpu' in data) this.gpu?.tensors.dispose(data.gpu, data.room);
    }
  }

  /** @param {Feeds} feeds @param {import('../../session/verify.js').How} how */
  verify(feeds, how) {
    const copies = wires(feeds);
    return this.kept(feeds, () => verify(this.model, copies, how));
  }

  /** @param {Feeds} feeds */
  timeline(feeds) {
    const copies = wires(feeds);
    return this.kept(feeds, () => timeline(this.model, copies));
  }

  /** @param {Feeds} feeds @param {number} repeat */
  profile(feeds, repeat) {
    const copies = wires(feeds);
    return this.kept(feeds, () => this.model.profile(copies, repeat));
  }

  /** @param {Record<string, number | number[]>} dims */
  prepare(dims) {
    return this.enqueue(() => prepare(this.model, dims));
  }

  trim() {
    return this.enqueue(() => this.model.trim());
  }

  /** @param {'memory' | 'metrics' | 'explain'} what @returns {Record<string, unknown>} */
  ask(what) {
    if (what === 'metrics') return this.model.metrics();
    return what === 'memory' ? this.model.memoryReport() : this.model.explain();
  }

  release() {
    return this.enqueue(async () => this.model.release());
  }
}

/**
 * Moves a session from the worker to the page's GPU.
 * @param {{ caller: Caller, session: number }} worker the session in the worker, which only compiles afterwards
 * @param {Settings} settings @param {import('../../gpu/device.js').Gpu} gpu
 * @returns {Promise<GpuSession>}
 */
export async function moveToGpu(worker, settings, gpu) {
  const created = await worker.caller.call('moveToPage', { session: worker.session, gpu: gpu.adapter });
  const release = (/** @type {number} */ session) => void worker.caller.call('release', { session }).catch(() => {});
  const moved = await GpuSession.open(worker.caller, created, gpu, settings).catch((cause) => {
    release(created.session);
    const hint = 'it stays in the worker, and runs with tensors on the CPU';
    throw new SessionFailed(`the session could not move to the page's GPU: ${cause.message}`, { hint, cause });
  });
  release(worker.session);
  worker.session = created.session;
  return moved;
}

/**
 * @template T @param {import('../engine/cancellation.js').Cancellation | null} cancellation
 * @param {(stop: Stop | null) => Promise<T>} action
 */
async function stoppable(cancellation, action) {
  if (!cancellation) return action(null);
  cancellation.check();
  const stop = new Stop(1, null, () => {}); // no other thread can write to its memory while this one runs kernels
  const end = cancellation.watch(() => stop.controller.abort());
  return action(stop).finally(end);
}

/** Copies feeds, so that the caller cannot change them while the run waits. @param {Feeds} feeds @returns {Record<string, WireValue>} */
const wires = (feeds) => mapTensors(feeds, wire);

/** @param {Tensor} tensor @returns {WireTensor} */
function wire(tensor) {
  if (tensor.location === 'gpu-buffer') return wireOf(tensor);
  const { type, dims, data } = tensor;
  return { type, dims: [...dims], data: /** @type {import('../../common/protocol.js').NumericData | string[]} */ (data) };
}

/** @param {Tensor} into @returns {WireTensor | null} null for a tensor on the CPU, which is filled after the run */
const target = (into) => (into.location === 'gpu-buffer' ? wireOf(into) : null);
