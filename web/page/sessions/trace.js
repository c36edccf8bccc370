// Traces of enableProfiling: Chrome's trace events, which Chrome's viewer and Perfetto open, with onnxruntime's names and fields.
// Twin of pyruntime/api/trace.py.
// Spec: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format)

/** @import { KernelTiming } from '../../common/protocol.js' */

const GPU = 2; // row of its kernels

/** Events of one session. */
export class Trace {
  /** @param {number} [start] when it begins, by performance.now() */
  constructor(start = performance.now()) {
    this.start = start;
    /** @type {object[]} */
    this.events = [];
    /** Names of the rows, if there are several. @type {object[] | null} */
    this.rows = null;
  }

  /**
   * Adds an event of the session, from `start` until now.
   * @param {string} name @param {number} start @param {Record<string, unknown>} [args]
   */
  session(name, start, args = {}) {
    this.add('Session', name, start, performance.now() - start, args);
  }

  /**
   * Adds the kernels of a run that just ended: those on the CPU one after the other, those on the GPU in a row of their own, at the times
   * of the GPU's clock.
   * @param {readonly KernelTiming[]} calls @param {number} begun when the run began
   */
  kernels(calls, begun) {
    const onCpu = calls.filter(({ place }) => place === 'wasm');
    const ends = { wasm: performance.now() - onCpu.reduce((sum, { milliseconds }) => sum + milliseconds, 0), webgpu: begun };
    for (const [number, { node, kernel, place, milliseconds, start, bytes }] of calls.entries()) {
      const at = start === undefined ? ends[place] : begun + start;
      ends[place] = at + milliseconds;
      const args = { op_name: operatorOf(node), node_index: String(number), node, kernel, bytes, provider: place };
      this.add('Node', `${node}_kernel_time`, at, milliseconds, args, place === 'webgpu' ? GPU : 1);
    }
    if (onCpu.length < calls.length) {
      this.rows ??= [[1, 'session'], [GPU, 'GPU']].map(([tid, name]) => ({ ph: 'M', pid: 1, tid, name: 'thread_name', args: { name } }));
    }
  }

  /**
   * Times are in microseconds.
   * @param {string} cat @param {string} name @param {number} start @param {number} duration @param {Record<string, unknown>} args
   * @param {number} [tid] row
   */
  add(cat, name, start, duration, args, tid = 1) {
    const [ts, dur] = [Math.max(0, start - this.start), duration].map((time) => Math.round(1e6 * time) / 1e3);
    this.events.push({ cat, pid: 1, tid, ts, dur, ph: 'X', name, args });
  }

  /** The text of the trace's file. */
  text() {
    return JSON.stringify([...(this.rows ?? []), ...this.events]);
  }
}

/** The operator in a node's label: `If "a" (opset 17) > Add "b" (opset 17)`. @param {string} label */
export const operatorOf = (label) => /** @type {string} */ (label.split(/" \(opset \d+\) > /).pop()).split(' ')[0];
