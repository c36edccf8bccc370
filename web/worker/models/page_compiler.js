// Compiles for a session that runs on the page's GPU (docs/design/gpu.md#gpu-of-the-page): the worker's side of
// page/executor/remote_compiler.js.

import { during } from '../../common/log.js';
import { valuesOf } from '../../session/value_info.js';
import { readerOf } from '../files/reader.js';
import { CachedCompiler } from '../programs/cached_compiler.js';
import { readInPython, storePrograms } from './open_compiled.js';

/** @import { ProgramData } from '../../common/program.js' */
/** @import { CompiledProgram, How } from '../../common/protocol.js' */
/** @import { Stop } from '../../common/stop.js' */
/** @import { ReadFile } from '../../run/environment.js' */
/** @import { Compiler } from '../../session/compiler.js' */
/** @import { Files } from '../files/model_file.js' */
/** @import { Opened, Source, Way } from './types.js' */

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

/** Opens a model for a session that runs on the page's GPU. @type {Way} */
export const openForPage = async (source) => (source.params.gpu ? compilerForPage(source) : null);

/**
 * The compiler of a session that runs on the page's GPU, or moves there.
 * @param {Source} source @returns {Promise<Opened>}
 */
export async function compilerForPage(source) {
  const { cache, files, start, program, interpreter, progress } = source;
  if (program) {
    const other = program.program.again();
    other.choose(source.gpu, '', false);
    return servedToPage(source, other, program.weights);
  }
  const bundle = interpreter.customised ? null : await cache?.find(files);
  bundle?.reads.forEach((range) => source.reads.add(range));
  const download = performance.now() - start;
  if (!bundle) await interpreter.start(progress);
  const booted = performance.now();
  progress({ phase: 'compile', loaded: 0, total: 1 });
  const open = () => readInPython(source);
  const compiler = bundle ? new CachedCompiler(bundle, open) : await open();
  const opened = servedToPage(source, compiler, files);
  if (!bundle) opened.model.onMainProgram = (main) => storePrograms(source, compiler, new Map([['', main]]));
  progress({ phase: 'compile', loaded: 1, total: 1 });
  return { ...opened, timings: { download, compile: performance.now() - booted, init: 0 } };
}

/** @param {Source} source @param {Compiler} compiler @param {Files} files with the weights */
export function servedToPage(source, compiler, files) {
  const model = new PageCompiler(compiler, readerOf(files), source.host.logOptions);
  return { model, source, files: [...files.values()], timings: { download: 0, compile: 0, init: 0 } };
}
