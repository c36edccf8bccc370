// Compiles a model by calling Python's `pyruntime.browser.Model`. Values cross as JSON.

/** @import { ProgramData } from '../../common/program.js' */
/** @import { Stop } from '../../common/stop.js' */
/** @import { HostArray } from '../../run/environment.js' */
/** @import { Compiler } from '../../session/compiler.js' */
/**
 * @typedef {{ info: string, needs: string, timings: string, main: any, specialise: (feeds: string, outputs: string) => any, leave_gpu: (nodes: string) => void,
 *   for_sizes: (feeds: string) => any, split_dims: (names: string) => void, export_plan: () => string, with_all_results: (feeds: string, cpuOnly: boolean) => any,
 *   half_ranges: (feeds: string) => any, tuning: (feeds: string) => any, listing: (feeds: string, node: string, code: boolean) => string,
 *   portable: (providers: string, assume: string) => any,
 *   destroy: () => void }} ModelProxy
 */

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

  /** @param {string[]} providers @param {string[]} assume */
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
   * @param {any} program @param {{ id: number }} step @param {unknown[]} inputs each a HostArray or null
   * @param {import('../../common/dims.js').Env} env @param {Stop | null} stop
   * @returns {HostArray[]}
   */
  host(program, step, inputs, env, stop) {
    const symbols = JSON.stringify(Object.fromEntries(env));
    return this.python.stoppable(stop, () => JSON.parse(program.host(step.id, JSON.stringify(inputs), symbols)));
  }

  destroy() {
    this.proxy.destroy();
  }

  /** @param {any} compilation of pyruntime.browser @returns {ProgramData | null} */
  take(compilation) {
    if (!compilation) return null;
    this.compiled++;
    return { header: JSON.parse(compilation.json), blob: takeBytes(compilation.blob), python: compilation };
  }
}

/** Copies Python bytes. @param {any} proxy @returns {Uint8Array} */
function takeBytes(proxy) {
  const buffer = proxy.getBuffer('u8');
  const bytes = buffer.data.slice();
  buffer.release();
  proxy.destroy();
  return bytes;
}
