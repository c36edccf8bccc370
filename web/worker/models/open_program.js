// Opens an exported Program: of those in its file, the one that this host's GPU can run, or one without a GPU.

import { InvalidInput, InvalidModel } from '../../common/errors.js';
import { warn } from '../../common/log.js';
import { isProgram } from '../../common/program_mark.js';
import { ExportedProgram } from '../programs/program_file.js';
import { gpuFor } from './choose_gpu.js';
import { closeAll, ownFile, weightsOf } from './model_files.js';
import { modelOf, started } from './open_compiled.js';
import { servedToPage } from './open_for_page.js';

/** @import { Gpu } from '../../gpu/device.js' */
/** @import { SessionHost } from '../../session/compiler.js' */
/** @import { ModelFile } from '../files/model_file.js' */
/** @import { Opened, Source, Way } from './types.js' */

/** @type {Way} */
export async function openProgram(source) {
  const { params, files, progress, stop } = source;
  const own = ownFile(files);
  if (!isProgram(own.read(0, Math.min(4, own.size)))) return null;
  if (params.options.training) throw new InvalidModel('a compiled Program cannot be trained', { hint: 'train the model it was made of' });
  const refused = params.refusedForPrograms.join(', ');
  if (refused) throw new InvalidInput(`${refused} cannot change a compiled Program`);
  const program = new ExportedProgram(own.read(0, own.size));
  if (program.header.states) throw new InvalidModel('this Program trains a model; it cannot be opened as a session');
  const host = await hostFor(program, source);
  closeAll([own]); // its content is in memory
  host.gpu?.warm(program.main());
  const weights = await weightsOf(program, params, files, progress, stop);
  try {
    return await openWithWeights(program, { ...source, host }, weights);
  } catch (error) {
    closeAll(weights.values());
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    throw new InvalidModel(`this browser cannot run the program: ${error.message}`, { hint: 'export it without --relaxed' });
  }
}

/** @param {ExportedProgram} program @param {Source} from @param {Map<string, ModelFile>} weights by name @returns {Promise<Opened>} */
async function openWithWeights(program, from, weights) {
  const { params, host, start } = from;
  const times = { download: performance.now() - start, compile: 0 };
  const source = { ...from, cache: null, gpu: params.gpu ?? host.gpu?.adapter ?? null, program: { program, weights } };
  const usesGpu = Boolean(program.header.needs);
  const opened = usesGpu && params.gpu
    ? { ...servedToPage(source, program, weights), timings: { ...times, init: 0 } }
    : await started(modelOf(source, program, weights), source, times);
  return { ...opened, source: usesGpu ? source : undefined, files: [...from.files.values(), ...weights.values()] };
}

/** What a Program runs on. Chooses the Program of the file. @param {ExportedProgram} program @param {Source} source @returns {Promise<SessionHost>} */
async function hostFor(program, { params, host: { pool = null, memoryLimit, gpuTimeout, logOptions, gpu: found, whyNotGpu = '' }, candidate }) {
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
