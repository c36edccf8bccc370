// Compiles for a session that runs on the page's GPU (docs/design/gpu.md#gpu-of-the-page): the worker's side of
// page/gpu/remote_compiler.js.

import { during } from '../../common/log.js';
import { valuesOf } from '../../session/model.js';

/** @typedef {import('../../common/protocol.js').CompiledProgram} CompiledProgram */
/** @typedef {import('../../common/protocol.js').How} How */
/** @typedef {import('../../common/stop.js').Stop} Stop */
/** @typedef {import('../../run/environment.js').ReadFile} ReadFile */
/** @typedef {import('../../session/compiler.js').Compiled} Compiled */
/** @typedef {import('../../session/compiler.js').Compiler} Compiler */

export class PageCompiler {
  /** @param {Compiler} python @param {Compiled} proxy @param {ReadFile} read @param {import('../../common/log.js').Said} [said] */
  constructor(python, proxy, read, said) {
    this.python = python;
    this.proxy = proxy;
    this.read = read;
    this.said = said;
    /** What Python keeps of the Programs in the page. @type {Map<number, any>} */
    this.programs = new Map();
    this.next = 1;
    /** Told of the Program for all feeds. @type {(program: import('../../common/program.js').ProgramData) => void} */
    this.made = () => {};
  }

  get compiled() {
    const { info, needs, timings } = this.proxy;
    return { info, needs, timings };
  }

  get values() {
    return valuesOf(this.proxy.info);
  }

  /** @param {How} how @param {any} given @param {Stop | null} stop */
  async compile(how, given, stop) {
    const { proxy } = this;
    const python = /** @type {any} */ (this.python);
    const result = await during(this.said, () => python[how](proxy, given, stop));
    const made = /** @type {(import('../../common/program.js').ProgramData | null)[]} */ (how === 'watched' ? result : [result]);
    if (how === 'main' && made[0]) this.made(made[0]);
    if (how === 'fallBack' || how === 'takeApart') this.made = () => {}; // what comes is for this session alone
    const programs = made.map((program) => (program ? this.keep(program) : null));
    return { programs, compiled: this.compiled };
  }

  /** Its code crosses as a copy, for the original may be kept for later pages. @param {import('../../common/program.js').ProgramData} program @returns {CompiledProgram} */
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
    return this.python.host(this.programs.get(program), /** @type {any} */ ({ id }), /** @type {any[]} */ (inputs), new Map(symbols), stop);
  }

  /** @param {number} number of a Program */
  forget(number) {
    this.programs.get(number)?.destroy();
    this.programs.delete(number);
  }

  release() {
    for (const number of [...this.programs.keys()]) this.forget(number);
    this.proxy.destroy();
  }
}
