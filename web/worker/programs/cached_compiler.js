// Provides the Programs that an earlier page compiled. When a session needs anything else, Python starts and takes over.

/** @import { Stop } from '../../common/stop.js' */
/** @import { Compiler } from '../../session/compiler.js' */

/** @implements {Compiler} */
export class CachedCompiler {
  /** @param {import('./program_bundle.js').Bundle} bundle @param {() => Promise<Compiler>} open reads the model in Python */
  constructor(bundle, open) {
    this.bundle = bundle;
    this.open = open;
    /** @type {Compiler | null} */
    this.python = null;
    /** @type {Promise<Compiler> | null} */
    this.opening = null;
  }

  get info() {
    return this.bundle.info;
  }

  get needs() {
    return this.python?.needs ?? this.bundle.needs;
  }

  get timings() {
    return this.python?.timings ?? '{}';
  }

  get compiled() {
    return this.python?.compiled ?? 0;
  }

  /** Starts Python once for all callers; after a failure, again. */
  start() {
    this.opening ??= this.open().then(
      (python) => this.python = python,
      (error) => { this.opening = null; throw error; },
    );
    return this.opening;
  }

  main() {
    return this.python ? this.python.main() : this.bundle.programs.get('') ?? null;
  }

  /** @param {object} feeds @param {Stop | null} stop @param {string[]} [outputs] */
  async specialise(feeds, stop, outputs) {
    return (await this.start()).specialise(feeds, stop, outputs);
  }

  /** @param {object} feeds @param {Stop | null} stop */
  async forSizes(feeds, stop) {
    return (await this.start()).forSizes?.(feeds, stop) ?? null;
  }

  /** @param {Record<string, string>} nodes */
  async leaveGpu(nodes) {
    await (await this.start()).leaveGpu(nodes);
  }

  /** @param {string[]} names */
  async splitDims(names) {
    await (await this.start()).splitDims?.(names);
  }

  /** @param {object} feeds */
  async allResults(feeds) {
    return (await this.start()).allResults(feeds);
  }

  /** @param {object} feeds */
  async halfRanges(feeds) {
    return (await this.start()).halfRanges?.(feeds) ?? null;
  }

  /** @param {Parameters<Required<Compiler>['listing']>} what */
  async listing(...what) {
    return /** @type {Required<Compiler>} */ (await this.start()).listing(...what);
  }

  /** @param {Parameters<Required<Compiler>['portable']>} what */
  async portable(...what) {
    return /** @type {Required<Compiler>} */ (await this.start()).portable(...what);
  }

  /** @param {object} feeds */
  async tuning(feeds) {
    return /** @type {Required<Compiler>} */ (await this.start()).tuning(feeds);
  }

  async exportPlan() {
    return (await this.start()).exportPlan?.() ?? '[]';
  }

  /** @type {Compiler['host']} */
  async host(...step) {
    return (await this.start()).host(...step);
  }

  destroy() {
    this.opening?.then((python) => python.destroy(), () => {});
  }
}
