// Types of what compiles a model for a session: Python beside it (python.js), a Program from a file in its place
// (program_file.js), or, for a session in the page, the worker (remote_compiler.js).

/** @template T @typedef {import('../common/maybe_promise.js').MaybePromise<T>} MaybePromise */
/** @typedef {import('../common/program.js').ProgramData} ProgramData */
/** @typedef {import('../common/stop.js').Stop} Stop */
/** @typedef {import('../run/environment.js').ReadFile} ReadFile */

/**
 * The model as its compiler knows it. JSON: types of inputs and outputs, `Needs` as they are now, milliseconds of phases.
 * @typedef {{ readonly info: string, readonly needs: string, readonly timings: string, destroy: () => void }} Compiled
 */
/**
 * @typedef {object} Compiler
 * @property {(model: any) => MaybePromise<ProgramData | null>} main the Program for all feeds, if there is one
 * @property {(model: any, feeds: Record<string, unknown>, stop: Stop | null) => MaybePromise<ProgramData | null>} specialise the one for these feeds; null if `needs` has grown
 * @property {(model: any) => MaybePromise<void>} fallBack from now on without the GPU
 * @property {(model: any, feeds: object) => MaybePromise<ProgramData[]>} watched with the GPU and without, every kernel's results as outputs
 * @property {(model: any, feeds: object) => MaybePromise<Tuning>} [tuning] Programs with other schedules
 * @property {(model: any, names: string[]) => MaybePromise<void>} [takeApart] dims of these names are different ones
 * @property {import('../run/environment.js').HostSteps['host']} host
 */
/**
 * What to measure in turns with the standard Program, one after the other until it is null, and what came of it: the best
 * milliseconds of a run and of the kernels of each node. pyruntime/compiler/tuning.py
 * @typedef {{ run: number, kernels: Record<string, number> }} Times
 * @typedef {object} Tuning
 * @property {ProgramData} standard
 * @property {() => ProgramData | null} next
 * @property {(times: [standard: Times, other: Times]) => void} measured
 * @property {() => Omit<import('../common/protocol.js').Tuned, 'took'>} result
 * @property {() => void} destroy
 */
/** What a Program reads of files. @typedef {(program: ProgramData) => MaybePromise<ReadFile>} WeightsOf */
export {};
