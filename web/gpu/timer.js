// Times kernels on the GPU, each in its own compute pass: by the GPU's clock if the device has `timestamp-query`, else
// from submission until the queue is done, which includes the latency of both. Repeating a kernel makes its time longer than the
// clock's steps (Chromium rounds timestamps to 0.1 ms) and its share of the latency small.

import { submitInPortions } from '../run/portions.js';
import { USAGE } from './flags.js';

/** @import { Stop } from '../common/stop.js' */
/** @import { Timed } from '../run/types.js' */
/** @import { Prepared } from './prepared.js' */
/**
 * The part of a GPU runner that a timer uses.
 * @typedef {{ gpu: import('./types.js').Device, memory: import('./memory.js').GpuMemory, ready(step: Prepared): void,
 *   encode(step: Prepared, begin: number, end: number, how?: GPUComputePassDescriptor, repeat?: number): void }} GpuRunner
 */

const PAIRS = 2048; // in a query set, which holds 4096 timestamps
const NS = 1e6; // in a millisecond

/** The timer of one run. */
export class KernelTimer {
  /**
   * @param {GpuRunner} runner @param {Timed[]} found receives the kernels in the order of their calls
   * @param {number} repeat how often each kernel runs, one after the other; times are means
   */
  constructor(runner, found, repeat) {
    this.runner = runner;
    this.gpu = runner.gpu;
    this.found = found;
    this.repeat = repeat;
    /** Kernels whose timestamps are in the query sets. @type {Timed[]} */
    this.waiting = [];
    /** @type {GPUQuerySet[]} */
    this.sets = [];
  }

  /** Runs a step. @param {Prepared} step @param {Stop | null} stop */
  async run(step, stop) {
    const { runner } = this;
    const { queue, features } = this.gpu.device;
    runner.ready(step);
    if (!features.has('timestamp-query')) return this.runOneByOne(step, stop);
    const encode = (/** @type {number} */ begin, /** @type {number} */ end) => {
      for (let n = begin; n < end; n++) {
        runner.encode(step, n, n + 1, { timestampWrites: this.timestampWrites(this.begin(step, n)) }, this.repeat);
      }
      runner.memory.flush();
    };
    const count = step.dispatched.length;
    if (stop) await submitInPortions(step, count, { encode, sent: () => queue.onSubmittedWorkDone() }, stop);
    else encode(0, count);
  }

  /** Without timestamps: waits for the queue after each kernel. @param {Prepared} step @param {Stop | null} stop */
  async runOneByOne(step, stop) {
    const { runner } = this;
    runner.memory.flush();
    await this.gpu.device.queue.onSubmittedWorkDone(); // earlier work, such as writes of feeds
    for (const n of step.dispatched.keys()) {
      const timed = this.begin(step, n);
      const start = performance.now();
      runner.encode(step, n, n + 1, undefined, this.repeat);
      runner.memory.flush();
      await this.gpu.device.queue.onSubmittedWorkDone();
      timed.milliseconds = (performance.now() - start) / this.repeat;
      await stop?.yieldToEventLoop();
    }
  }

  /** A record for a dispatch. @param {Prepared} step @param {number} n dispatch */
  begin({ dispatched }, n) {
    const timed = { call: dispatched[n], place: /** @type {const} */ ('webgpu'), milliseconds: 0 };
    this.found.push(timed);
    return timed;
  }

  /** Where a pass writes its timestamps. @param {Timed} timed @returns {GPUComputePassTimestampWrites} */
  timestampWrites(timed) {
    const n = this.waiting.push(timed) - 1;
    if (n % PAIRS === 0) {
      const create = () => this.gpu.device.createQuerySet({ type: 'timestamp', count: 2 * PAIRS, label: 'times' });
      this.sets.push(this.gpu.catchErrors(create));
    }
    const [querySet, at] = [this.sets[this.sets.length - 1], 2 * (n % PAIRS)];
    return { querySet, beginningOfPassWriteIndex: at, endOfPassWriteIndex: at + 1 };
  }

  /** Waits for the timestamps and reads them. */
  async read() {
    if (!this.sets.length) return;
    const { memory } = this.runner;
    const size = 16 * this.waiting.length;
    const usage = USAGE.QUERY_RESOLVE | USAGE.COPY_SRC;
    const resolved = this.gpu.catchErrors(() => this.gpu.device.createBuffer({ size, usage, label: 'times' }));
    const copy = (/** @type {GPUBuffer} */ staging) => {
      const encoder = memory.commands();
      this.sets.forEach((set, n) => {
        encoder.resolveQuerySet(set, 0, 2 * Math.min(PAIRS, this.waiting.length - n * PAIRS), resolved, 16 * PAIRS * n);
      });
      encoder.copyBufferToBuffer(resolved, 0, staging, 0, size);
      memory.flush();
    };
    await this.gpu.read(size, copy, (bytes) => this.fill(new BigUint64Array(bytes, 0, 2 * this.waiting.length)));
    resolved.destroy();
  }

  release() {
    for (const set of this.sets) set.destroy();
  }

  /** Sets the times; 0 if the clock was set back in between. @param {BigUint64Array} times nanoseconds */
  fill(times) {
    const first = times[0];
    this.waiting.forEach((timed, n) => {
      timed.milliseconds = Math.max(0, Number(times[2 * n + 1] - times[2 * n]) / NS / this.repeat);
      timed.start = Math.max(0, Number(times[2 * n] - first) / NS);
    });
  }
}
