// A session on the GPU of the page: the model that the worker compiles, run here (docs/design/gpu.md#gpu-of-the-page).

import { pageThreads } from '../engine/client.js';
import { hasSharedMemory } from '../../common/shared_memory.js';
import { Stop } from '../../common/stop.js';
import { explain } from '../../run/explain.js';
import { Model } from '../../session/model.js';
import { verify } from '../../session/verify.js';
import { RemoteCompiler } from './remote_compiler.js';
import { wireOf } from '../tensors/gpu_tensors.js';

/** @typedef {import('onnxruntime-common').Tensor} Tensor */
/** @typedef {import('../../common/protocol.js').CreateResult} CreateResult */
/** @typedef {import('../../common/protocol.js').Fetch} Fetch */
/** @typedef {import('../../common/protocol.js').RunResult} RunResult */
/** @typedef {import('../../common/protocol.js').WireTensor} WireTensor */
/** @typedef {import('../../common/protocol.js').WireValue} WireValue */
/** @typedef {Record<string, Tensor | Tensor[] | null>} Feeds */

export class GpuSession {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    /** Runs follow one another. @type {Promise<unknown>} */
    this.queue = Promise.resolve();
  }

  /**
   * Ready to run.
   * @param {import('../../common/protocol.js').Caller} caller @param {CreateResult} created @param {import('../../gpu/device.js').Gpu} gpu
   * @param {{ said?: import('../../common/log.js').Said, limits: import('../../common/protocol.js').Limits }} settings
   * @param {import('../engine/cancellation.js').Cancellation | null} [cancellation] of the creation
   */
  static async open(caller, { session, threads, compiled }, gpu, { said, limits }, cancellation = null) {
    const compiler = new RemoteCompiler(caller, session, /** @type {import('../../common/protocol.js').Compiled} */ (compiled));
    const host = { shared: hasSharedMemory(), threads, pool: pageThreads(), gpu, said, memoryLimit: limits.memoryLimit };
    const model = new Model(compiler, (program) => compiler.weights(program), host);
    try {
      await stoppable(cancellation, (stop) => model.start(stop));
    } catch (error) {
      model.release();
      throw error;
    }
    return new GpuSession(model);
  }

  get gpu() {
    return this.model.host.gpu ?? null;
  }

  /** @template T @param {() => Promise<T>} action @returns {Promise<T>} */
  enqueue(action) {
    const done = this.queue.then(action);
    this.queue = done.catch(() => {});
    return done;
  }

  /**
   * @param {Feeds} feeds @param {Record<string, Tensor | Fetch>} fetches a tensor to fill, or where to leave it
   * @param {import('../engine/cancellation.js').Cancellation | null} cancellation @param {boolean} timed whether kernels are @returns {Promise<RunResult>}
   */
  run(feeds, fetches, cancellation, timed) {
    const targets = Object.fromEntries(Object.entries(fetches).map(([name, into]) => [name, into && into !== 'gpu' ? target(/** @type {Tensor} */ (into)) : into]));
    const given = wires(feeds);
    return this.enqueue(() => stoppable(cancellation, async (stop) => {
      const start = performance.now();
      const outputs = await this.model.run(given, targets, stop, timed);
      return { outputs, milliseconds: performance.now() - start, kernels: this.model.kernels };
    }));
  }

  /** @param {Feeds} feeds @param {number} tolerance */
  verify(feeds, tolerance) {
    const given = wires(feeds);
    return this.enqueue(() => verify(this.model, given, tolerance));
  }

  /** @param {Feeds} feeds */
  profile(feeds) {
    const given = wires(feeds);
    return this.enqueue(() => this.model.profile(given));
  }

  trim() {
    return this.enqueue(() => this.model.trim());
  }

  /** @param {'memory' | 'explain'} what @returns {Record<string, unknown>} */
  ask(what) {
    const { latest, phases } = this.model;
    return what === 'memory' ? latest.memoryReport() : { ...explain(latest.header, latest.env), phases };
  }

  release() {
    return this.enqueue(async () => this.model.release());
  }
}

/** @template T @param {import('../engine/cancellation.js').Cancellation | null} cancellation @param {(stop: Stop | null) => Promise<T>} action */
async function stoppable(cancellation, action) {
  if (!cancellation) return action(null);
  cancellation.check();
  const stop = new Stop(1, null, () => {}); // nobody can put a word into the memory while this thread runs kernels
  const end = cancellation.watch(() => stop.controller.abort());
  return action(stop).finally(end);
}

/** @param {Feeds} feeds copies: runs may wait @returns {Record<string, WireValue>} */
const wires = (feeds) => Object.fromEntries(Object.entries(feeds).map(([name, feed]) => [name, Array.isArray(feed) ? feed.map(wire) : feed && wire(feed)]));

/** @param {Tensor} tensor @returns {WireTensor} */
function wire(tensor) {
  if (tensor.location === 'gpu-buffer') return wireOf(tensor);
  const { type, dims, data } = tensor;
  return { type, dims: [...dims], data: /** @type {import('../../common/protocol.js').NumericData | string[]} */ (data) };
}

/** @param {Tensor} into @returns {WireTensor | null} those on the CPU are filled after the run */
const target = (into) => (into.location === 'gpu-buffer' ? wireOf(into) : null);
