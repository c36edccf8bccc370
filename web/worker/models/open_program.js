// Opens an exported Program: of those in its file, the one that this host's GPU can run, or one without a GPU.

import { InvalidInput, InvalidModel } from '../../common/errors.js';
import { warn } from '../../common/log.js';
import { Model } from '../../session/model.js';
import { ExportedProgram } from '../programs/program_file.js';
import { readerOf } from '../files/reader.js';
import { gpuFor } from './choose_gpu.js';
import { closeAll, weightsOf } from './model_files.js';
import { PageCompiler } from './page_compiler.js';
import { started } from './start_model.js';

/** @import { CreateParams } from '../../common/protocol.js' */
/** @import { Gpu } from '../../gpu/device.js' */
/** @import { SessionHost } from '../../session/compiler.js' */
/** @import { ModelFile } from '../files/model_file.js' */
/** @import { OnProgress } from './model_files.js' */
/** @import { Opened, Source } from './types.js' */

/**
 * @param {CreateParams} params @param {Source} source @param {OnProgress} progress
 * @param {Gpu} [candidate] the GPU that the provider "auto" would measure
 * @returns {Promise<Opened>}
 */
export async function openProgram(params, source, progress, candidate) {
  if (params.options.training) throw new InvalidInput('a compiled Program cannot be trained', { hint: 'train the model it was made of' });
  const refused = params.refusedForPrograms.join(', ');
  if (refused) throw new InvalidInput(`${refused} cannot change a compiled Program`);
  const { start, files, stop } = source;
  const own = /** @type {ModelFile} */ (files.get(''));
  const program = new ExportedProgram(own.read(0, own.size));
  if (program.header.states) throw new InvalidModel('this Program trains a model; it cannot be opened as a session');
  const host = await hostFor(program, params, source.host, candidate);
  closeAll([own]); // its content is in memory
  host.gpu?.warm(program.main());
  const weights = await weightsOf(program, params, files, progress, stop);
  const usesGpu = Boolean(program.header.needs);
  const kept = { ...source, cache: null, trainer: null, gpu: params.gpu ?? host.gpu?.adapter ?? null, host, program: { program, weights } };
  const read = readerOf(weights);
  const download = performance.now() - start;
  const opened = { files: [...files.values(), ...weights.values()], ...usesGpu ? { source: kept } : {} };
  if (usesGpu && params.gpu) return { ...servedToPage(kept, program), ...opened, timings: { download, compile: 0, init: 0 } };
  try {
    return { ...await started(new Model(program, () => read, host), progress, { download, compile: 0 }, stop), ...opened };
  } catch (error) {
    closeAll(weights.values());
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    throw new InvalidModel(`this browser cannot run the program: ${error.message}`, { hint: 'export it without --relaxed' });
  }
}

/**
 * What a Program runs on. Chooses the Program of the file.
 * @param {ExportedProgram} program @param {CreateParams} params @param {SessionHost} host for a model with these parameters
 * @param {Gpu} [candidate] @returns {Promise<SessionHost>}
 */
async function hostFor(program, params, { pool = null, memoryLimit, gpuTimeout, logOptions, gpu: found, whyNotGpu = '' }, candidate) {
  const { fallback } = params;
  const threads = pool ? Math.min(program.threads, params.threads) : 1;
  const host = { shared: program.shared, threads, pool, gpu: null, memoryLimit, logOptions };
  if (!program.first.needs) return host;
  const asked = params.options.executionProviders ?? ['webgpu', ...program.hasFallback ? ['wasm'] : []];
  const hasWasm = asked.includes('wasm');
  const wantsGpu = asked.slice(0, asked.indexOf('wasm') >>> 0).includes('webgpu');
  if (!wantsGpu && !program.hasFallback) {
    throw new InvalidInput('this program runs on a GPU, which the session does not name', { hint: "executionProviders: ['webgpu']" });
  }
  const isDecided = params.options.executionProviders && program.hasFallback; // `found` is what a model with this choice would use
  const choice = !wantsGpu || isDecided ? { gpu: candidate ?? found ?? null, whyNot: whyNotGpu }
    : await gpuFor({ ...params, isAuto: false, options: { executionProviders: program.hasFallback ? asked : ['webgpu'] } });
  const gpu = wantsGpu ? choice.gpu : null;
  const adapter = params.gpu ?? gpu?.adapter ?? null;
  const why = program.choose(adapter, choice.whyNot, hasWasm && (fallback || !adapter));
  const usesGpu = Boolean(program.header.needs);
  if (why && adapter) warn(`${why}; the session runs on ${usesGpu ? 'less of the GPU' : 'WebAssembly'}`, logOptions);
  return { ...host, gpu: usesGpu ? gpu : null, named: params.named ?? asked, whyNotGpu: why, fallback, gpuTimeout };
}

/** @param {Source} source @param {ExportedProgram} program @returns {Pick<Opened, 'model' | 'source'>} */
const servedToPage = (source, program) => ({ model: new PageCompiler(program, readerOf(/** @type {any} */ (source.program).weights), source.host.logOptions), source });

/**
 * Opens the Programs of a file for a session that moves to the page's GPU.
 * @param {Source} source @param {NonNullable<Source['program']>} from @returns {Opened}
 */
export function programForPage(source, { program, weights }) {
  const moved = program.again();
  moved.choose(source.gpu, '', false);
  return { ...servedToPage(source, moved), files: [...weights.values()], timings: { download: 0, compile: 0, init: 0 } };
}
