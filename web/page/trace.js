// What enableProfiling gathers: Chrome's trace events, which Chrome's viewer and Perfetto open. The mirror of
// pyruntime/api/trace.py. Events have the fields and names of onnxruntime's.
// Spec: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format)

/** @typedef {import('../common/protocol.js').KernelTiming} KernelTiming */

/** Events of one session. */
export class Trace {
  /** @param {number} [start] when it begins, by performance.now() */
  constructor(start = performance.now()) {
    this.start = start;
    /** @type {object[]} */
    this.events = [];
  }

  /** Something that the session did from `start` until now. @param {string} name @param {number} start @param {Record<string, unknown>} [args] */
  session(name, start, args = {}) {
    this.add('Session', name, start, performance.now() - start, args);
  }

  /** The kernels of a run that just ended, each with its own time, one after the other. @param {readonly KernelTiming[]} calls */
  kernels(calls) {
    let start = performance.now() - calls.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
    for (const [number, { node, kernel, milliseconds, bytes }] of calls.entries()) {
      this.add('Node', `${node}_kernel_time`, start, milliseconds, { op_name: operatorOf(node), node_index: String(number), node, kernel, bytes });
      start += milliseconds;
    }
  }

  /** Times are in microseconds. @param {string} cat @param {string} name @param {number} start @param {number} duration @param {Record<string, unknown>} args */
  add(cat, name, start, duration, args) {
    const [ts, dur] = [Math.max(0, start - this.start), duration].map((time) => Math.round(1e6 * time) / 1e3);
    this.events.push({ cat, pid: 1, tid: 1, ts, dur, ph: 'X', name, args });
  }

  /** The trace as a file's text. */
  text() {
    return JSON.stringify(this.events);
  }
}

/** The operator of a node, by its label: `If "a" (opset 17) > Add "b" (opset 17)`. @param {string} label */
const operatorOf = (label) => /** @type {string} */ (label.split(/" \(opset \d+\) > /).pop()).split(' ')[0];
