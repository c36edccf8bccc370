// Compiles for a session that runs on the page's GPU (docs/design/gpu.md#gpu-of-the-page): the worker's side of
// page/executor/remote_compiler.js.

import { during } from '../../common/log.js';
import { valuesOf } from '../../session/value_info.js';

/** @import { ProgramData } from '../../common/program.js' */
/** @import { CompiledProgram, How } from '../../common/protocol.js' */
/** @import { Stop } from '../../common/stop.js' */
/** @import { ReadFile } from '../../run/environment.js' */
/** @import { Compiler } from '../../session/compiler.js' */

export class PageCompiler {
  /** @param {Compiler} compiler @param {ReadFile} read @param {import('../../common/log.js').LogOptions} [logOptions] */
  constructor(compiler, read, logOptions) {
    this.compiler = compiler;
    this.read = read;
    this.logOptions = logOptions;
    /** Python's objects for the Programs in the page, by number. @type {Map<number, ProgramData['python']>} */
    this.programs = new Map();
    this.next = 1;
    /** Takes the Program for all feeds. @type {(program: ProgramData) => void} */
    this.onMainProgram = () => {};
  }

  get compiled() {
    const { info, needs, timings, compiled = 0, canCompile = true, hasFallback = false, shared } = this.compiler;
    return { info, needs, timings, compiled, canCompile, hasFallback, shared };
  }

  get values() {
    return valuesOf(this.compiler.info);
  }

  /** @param {How} how @param {unknown} given @param {Stop | null} stop @param {string[]} [outputs] */
  async compile(how, given, stop, outputs) {
    const compiler = /** @type {Partial<Record<How, (given: unknown, stop: Stop | null, outputs?: string[]) => unknown>>} */ (this.compiler);
    const result = await during(this.logOptions, () => compiler[how]?.(given, stop, outputs) ?? null);
    const made = /** @type {(ProgramData | null)[]} */ (how === 'allResults' ? result : [result]);
    if (how === 'main' && made[0]) this.onMainProgram(made[0]);
    if (how === 'leaveGpu' || how === 'splitDims') this.onMainProgram = () => {}; // later Programs are for this session alone
    const programs = made.map((program) => (program ? this.keep(program) : null));
    return { programs, compiled: this.compiled };
  }

  /** Packs a Program for the page, with a copy of its code, because the cache may store the original. @param {ProgramData} program @returns {CompiledProgram} */
  keep({ header, blob, python }) {
    const number = this.next++;
    this.programs.set(number, python);
    return { number, header, blob: blob.slice(), timings: python.timings };
  }

  /** @param {[source: string, offset: number, size: number][]} places */
  weights(places) {
    return places.map(([source, offset, size]) => this.read(offset, size, source).slice());
  }

  /** @param {import('../../common/protocol.js').HostParams} step @param {Stop | null} stop */
  host({ program, id, inputs, symbols }, stop) {
    return this.compiler.host(this.programs.get(program), { id }, inputs, new Map(symbols), stop);
  }

  /** @param {number} number of a Program */
  forget(number) {
    this.programs.get(number)?.destroy();
    this.programs.delete(number);
  }

  release() {
    for (const number of [...this.programs.keys()]) this.forget(number);
    this.compiler.destroy();
  }
}
