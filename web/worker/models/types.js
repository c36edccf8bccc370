// Types of the models that the worker has open.

/** @import { ModelFile } from '../files/model_file.js' */
/**
 * A model that is ready for runs, or a compiler for a session in the page.
 * @typedef {object} Opened
 * @property {import('../../session/model.js').Model | import('./page_compiler.js').PageCompiler} model
 * @property {import('../../common/protocol.js').Timings} timings
 * @property {Source} [source] from which the model can be compiled again; a Program from a file that needs no GPU has none
 * @property {import('./gpu_trial.js').GpuTrial} [trial] of the provider "auto"
 * @property {ModelFile[]} files that the model reads until it is released
 */
/**
 * A model whose files are open.
 * @typedef {object} Source
 * @property {number} start of the call, in milliseconds
 * @property {import('../../common/protocol.js').Origin} origin
 * @property {Map<string, ModelFile>} files
 * @property {import('../files/read_ranges.js').ReadRanges} reads of the compiler
 * @property {Awaited<ReturnType<typeof import('../programs/program_cache.js').cachedPrograms>>} cache
 * @property {import('../../session/compiler.js').SessionHost} host
 * @property {Record<string, unknown> | null} gpu that the compiler writes code for
 * @property {Record<string, unknown>} options of the compiler
 * @property {import('../../common/stop.js').Stop | null} stop of the call
 * @property {import('../../session/model.js').States | null} trainer of a session that trains
 * @property {{ program: import('../programs/program_file.js').ExportedProgram, weights: Map<string, ModelFile> }} [program] of a file
 */
export {};
