// Times of kernels on the GPU, each in a compute pass of its own: by the GPU's clock, where the device has it
// (`timestamp-query`); else from its submission until the queue is done, so the way there and back is counted, too.

import { USAGE } from './flags.js';

/** @typedef {import('./device.js').Gpu} Gpu */
/** @typedef {import('./runner.js').Prepared} Prepared */
/** @typedef {{ call: import('../common/program.js').Call, place: 'wasm' | 'webgpu', milliseconds: number, start?: number }} Timed start: after the first kernel of the run, by the GPU's clock */

const PAIRS = 2048; // of a query set, which has room for 4096 times
const NS = 1e6; // of a millisecond

/** Of one run. */
export class KernelTimer {
  /** @param {Gpu} gpu @param {Timed[]} found gets the kernels, in the order they ran */
  constructor(gpu, found) {
    this.gpu = gpu;
    this.found = found;
    /** Kernels whose times the query sets will have. @type {Timed[]} */
    this.waiting = [];
    /** @type {GPUQuerySet[]} */
    this.sets = [];
  }

  /** Runs a step. @param {import('./runner.js').GpuRunner} runner @param {Prepared} step @param {import('../common/stop.js').Stop | null} stop */
  async run(runner, step, stop) {
    if (step.generation !== runner.memory.generation) runner.bind(step);
    const { queue, features } = this.gpu.device;
    for (const [n, call] of step.dispatched.entries()) {
      const timed = { call, place: /** @type {const} */ ('webgpu'), milliseconds: 0 };
      this.found.push(timed);
      if (features.has('timestamp-query')) {
        runner.encode(step, n, n + 1, { timestampWrites: this.writes(timed) });
        continue;
      }
      runner.memory.flush();
      const start = performance.now();
      runner.encode(step, n, n + 1);
      runner.memory.flush();
      await queue.onSubmittedWorkDone();
      timed.milliseconds = performance.now() - start;
      await stop?.look();
    }
    runner.memory.flush();
  }

  /** Where a pass leaves its times. @param {Timed} timed @returns {GPUComputePassTimestampWrites} */
  writes(timed) {
    const n = this.waiting.push(timed) - 1;
    if (n % PAIRS === 0) this.sets.push(this.gpu.catchErrors(() => this.gpu.device.createQuerySet({ type: 'timestamp', count: 2 * PAIRS, label: 'times' })));
    const [querySet, at] = [this.sets[this.sets.length - 1], 2 * (n % PAIRS)];
    return { querySet, beginningOfPassWriteIndex: at, endOfPassWriteIndex: at + 1 };
  }

  /** Waits for the times. @param {import('./memory.js').GpuMemory} memory of the session */
  async read(memory) {
    if (this.gpu.lost || !this.sets.length) return;
    const size = 16 * this.waiting.length;
    const usage = USAGE.QUERY_RESOLVE | USAGE.COPY_SRC;
    const resolved = this.gpu.catchErrors(() => this.gpu.device.createBuffer({ size, usage, label: 'times' }));
    const copy = (/** @type {GPUBuffer} */ staging) => {
      const encoder = memory.commands();
      this.sets.forEach((set, n) => encoder.resolveQuerySet(set, 0, 2 * Math.min(PAIRS, this.waiting.length - n * PAIRS), resolved, 16 * PAIRS * n));
      encoder.copyBufferToBuffer(resolved, 0, staging, 0, size);
      memory.flush();
    };
    await this.gpu.read(size, copy, (bytes) => this.fill(new BigUint64Array(bytes, 0, 2 * this.waiting.length)));
    resolved.destroy();
    for (const set of this.sets) set.destroy();
  }

  /** A clock that was set back in between gives 0. @param {BigUint64Array} times nanoseconds */
  fill(times) {
    const first = times[0];
    this.waiting.forEach((timed, n) => {
      timed.milliseconds = Math.max(0, Number(times[2 * n + 1] - times[2 * n]) / NS);
      timed.start = Math.max(0, Number(times[2 * n] - first) / NS);
    });
  }
}
