// Opens a model for a session in the page, on the page's GPU: the worker only compiles.

import { readerOf } from '../files/reader.js';
import { CachedCompiler } from '../programs/cached_compiler.js';
import { readInPython, storePrograms } from './open_compiled.js';
import { PageCompiler } from './page_compiler.js';

/** @import { Compiler } from '../../session/compiler.js' */
/** @import { Files } from '../files/model_file.js' */
/** @import { Opened, Source, Way } from './types.js' */

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
