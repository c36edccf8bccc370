// Compiles a model by calling Python's `pyruntime.browser.Model`. Values cross as JSON.

/** @import { ProgramData } from '../../common/program.js' */
/** @import { Stop } from '../../common/stop.js' */
/** @import { HostArray } from '../../common/protocol.js' */
/** @import { Compiler } from '../../session/compiler.js' */
/**
 * Python's objects: a buffer of bytes, a Program, schedules to measure, a model (pyruntime/browser.py).
 * @typedef {{ getBuffer(type: 'u8'): { data: Uint8Array, release(): void }, destroy(): void }} BytesProxy
 * @typedef {{ json: string, blob: BytesProxy, timings: string, host(id: number, inputs: string, symbols: string): string, destroy(): void,
 *   parts: { described(): string, run_start(provider: string): void, run_end(provider: string, error: string): void, bind(id: number, dims: string, symbols: string): import('../../run/python_parts.js').CopiedArrays } }} Compilation
 * @typedef {{ default: Compilation, next(): Compilation | undefined, measured(times: string): void, result: string, destroy(): void }} TuningProxy
 * @typedef {object} ModelProxy
 * @property {string} info
 * @property {string} needs
 * @property {string} timings
 * @property {Compilation | undefined} main
 * @property {(feeds: string, outputs: string) => Compilation | undefined} specialise
 * @property {(feeds: string) => Compilation | undefined} for_sizes
 * @property {(feeds: string) => Compilation | undefined} half_ranges
 * @property {(feeds: string, cpuOnly: boolean) => Compilation} with_all_results
 * @property {(providers: string, assume: string) => Compilation} portable
 * @property {(feeds: string) => TuningProxy} tuning
 * @property {(feeds: string, node: string, code: boolean) => string} listing
 * @property {(nodes: string) => void} leave_gpu
 * @property {(names: string) => void} split_dims
 * @property {{ close(): void, leave_nodes(provider: string, nodes: string): boolean, moved: string }} added providers of users
 * @property {() => void} recompile
 * @property {() => string} export_plan
 * @property {() => void} destroy
 */
/** Providers that users add (web/worker/providers/). @typedef {Required<Compiler>['added'] & { partsOf(compilation: Compilation): ProgramData['parts'], close(): void }} Added */

/**
 * The part of the interpreter that a model uses: functions that call Python and translate its errors.
 * @typedef {object} Python
 * @property {<T>(action: () => T) => T} guard
 * @property {<T>(stop: Stop | null, action: () => T) => T} stoppable the same, so that `stop` interrupts Python
 */

/** @implements {Compiler} */
export class PythonModel {
  /** @param {Python} python @param {ModelProxy} proxy */
  constructor(python, proxy) {
    this.python = python;
    this.proxy = proxy;
    this.compiled = 0;
    /** @type {Added | undefined} */
    this.added = undefined;
  }

  get info() {
    return this.proxy.info;
  }

  get needs() {
    return this.proxy.needs;
  }

  get timings() {
    return this.proxy.timings;
  }

  main() {
    return this.python.guard(() => this.take(this.proxy.main));
  }

  /** @param {object} feeds @param {Stop | null} stop @param {string[]} [outputs] */
  specialise(feeds, stop, outputs) {
    const names = outputs ? JSON.stringify(outputs) : '';
    return this.python.stoppable(stop, () => this.take(this.proxy.specialise(JSON.stringify(feeds), names)));
  }

  /** @param {object} feeds @param {Stop | null} stop */
  forSizes(feeds, stop) {
    return this.python.stoppable(stop, () => this.take(this.proxy.for_sizes(JSON.stringify(feeds))));
  }

  exportPlan() {
    return this.python.guard(() => this.proxy.export_plan());
  }

  /** @param {string[]} names */
  splitDims(names) {
    this.python.guard(() => this.proxy.split_dims(JSON.stringify(names)));
  }

  /** @param {Record<string, string>} nodes */
  leaveGpu(nodes) {
    this.python.guard(() => this.proxy.leave_gpu(JSON.stringify(nodes)));
  }

  /** @param {object} feeds @returns {ProgramData[]} */
  allResults(feeds) {
    const json = JSON.stringify(feeds);
    const compile = (/** @type {boolean} */ cpuOnly) => this.python.guard(() => this.take(this.proxy.with_all_results(json, cpuOnly)));
    return /** @type {ProgramData[]} */ ([compile(false), compile(true)]);
  }

  /** @param {object} feeds */
  halfRanges(feeds) {
    return this.python.guard(() => this.take(this.proxy.half_ranges(JSON.stringify(feeds))));
  }

  /** @param {object | null} feeds @param {string} node @param {boolean} code */
  listing(feeds, node, code) {
    return this.python.guard(() => this.proxy.listing(feeds ? JSON.stringify(feeds) : '', node, code));
  }

  /** @param {readonly string[]} providers @param {readonly string[]} assume */
  portable(providers, assume) {
    const [names, texts] = [providers, assume].map((list) => JSON.stringify(list));
    return /** @type {ProgramData} */ (this.python.guard(() => this.take(this.proxy.portable(names, texts))));
  }

  /** @param {object} feeds @returns {import('../../session/compiler.js').Tuning} */
  tuning(feeds) {
    const { python } = this;
    const tuning = python.guard(() => this.proxy.tuning(JSON.stringify(feeds)));
    return {
      standard: /** @type {ProgramData} */ (this.take(tuning.default)),
      next: () => python.guard(() => this.take(tuning.next())),
      measured: (times) => python.guard(() => tuning.measured(JSON.stringify(times))),
      result: () => JSON.parse(tuning.result),
      destroy: () => tuning.destroy(),
    };
  }

  /**
   * A host step: the only Python in a run.
   * @param {ProgramData['python'] | undefined} program @param {{ id: number }} step @param {(HostArray | null)[]} inputs
   * @param {import('../../common/dims.js').Env} env @param {Stop | null} stop
   * @returns {HostArray[]}
   */
  host(program, step, inputs, env, stop) {
    const symbols = JSON.stringify(Object.fromEntries(env));
    return this.python.stoppable(stop, () => JSON.parse(program.host(step.id, JSON.stringify(inputs), symbols)));
  }

  destroy() {
    this.added?.close();
    this.proxy.destroy();
  }

  /** @param {Compilation | undefined} compilation @returns {ProgramData | null} */
  take(compilation) {
    if (!compilation) return null;
    this.compiled++;
    return { header: JSON.parse(compilation.json), blob: takeBytes(compilation.blob), python: compilation, parts: this.added?.partsOf(compilation) };
  }
}

/** Copies Python bytes. @param {BytesProxy} proxy @returns {Uint8Array} */
function takeBytes(proxy) {
  const buffer = proxy.getBuffer('u8');
  const bytes = buffer.data.slice();
  buffer.release();
  proxy.destroy();
  return bytes;
}
