// Types of the models that the worker opens.

/** @import { CreateParams, Origin, Timings } from '../../common/protocol.js' */
/** @import { Stop } from '../../common/stop.js' */
/** @import { Gpu } from '../../gpu/device.js' */
/** @import { SessionHost } from '../../session/compiler.js' */
/** @import { Model, States } from '../../session/model.js' */
/** @import { ModelFile } from '../files/model_file.js' */
/** @import { ReadRanges } from '../files/read_ranges.js' */
/** @import { Interpreter } from '../interpreter/interpreter.js' */
/** @import { Bundle } from '../programs/program_bundle.js' */
/** @import { CachedPrograms } from '../programs/program_cache.js' */
/** @import { ExportedProgram } from '../programs/program_file.js' */
/** @import { GpuTrial } from './gpu_trial.js' */
/** @import { OnProgress } from './model_files.js' */
/** @import { PageCompiler } from './page_compiler.js' */
/**
 * A model that is ready for runs, or a compiler for a session in the page.
 * @typedef {object} Opened
 * @property {Model | PageCompiler} model
 * @property {Timings} timings
 * @property {Source} [source] from which the model can be compiled again; a Program from a file that needs no GPU has none
 * @property {GpuTrial} [trial] of the provider "auto"
 * @property {ModelFile[]} files that the model reads until it is released
 */
/**
 * A model to open, and what it is opened with.
 * @typedef {object} Source
 * @property {CreateParams} params
 * @property {OnProgress} progress
 * @property {Interpreter} interpreter
 * @property {() => Opened[]} others models that the worker has open
 * @property {number} start of the call, in milliseconds
 * @property {Map<string, ModelFile>} files
 * @property {ReadRanges} reads of the compiler
 * @property {CachedPrograms | null} cache
 * @property {SessionHost} host
 * @property {Record<string, unknown> | null} gpu that the compiler writes code for
 * @property {Gpu} [candidate] the GPU that the provider "auto" measures
 * @property {Record<string, unknown>} options of the compiler
 * @property {Stop | null} stop of the call
 * @property {States | null} trainer of a session that trains
 * @property {EarlyStart | null} [early] a start that began while the files arrived
 * @property {{ program: ExportedProgram, weights: Map<string, ModelFile> }} [program] of a file
 */
/**
 * A start that began while the files arrived. starting: no model if it failed, or if the files did not arrive.
 * @typedef {{ source: Source, bundle: Bundle, starting: Promise<Model | void> }} EarlyStart
 */
/** A way to open a model; null if it is of no use for this model. @typedef {(source: Source) => Promise<Opened | null>} Way */
export {};
