// Types of what the worker or the page provides to a session: its host, and the compiler of its model. The compiler is Python
// (worker/interpreter/python_model.js), Programs that an earlier page compiled (worker/programs/cached_compiler.js), an
// exported Program (worker/programs/program_file.js) or, for a session in the page, the worker (page/executor/remote_compiler.js).

/** @template T @typedef {import('../common/maybe_promise.js').MaybePromise<T>} MaybePromise */
/** @import { ProgramData } from '../common/program.js' */
/** @import { Stop } from '../common/stop.js' */
/** @import { ReadFile } from '../run/environment.js' */

/**
 * What a session runs on. named: the providers that the caller named; whyNotGpu: why the GPU is one of them and not used, or "";
 * trial: of the provider "auto"; fallback: whether it may leave the GPU after faults; logOptions: for its messages.
 * @typedef {import('../run/environment.js').Host
 *   & { gpu?: import('../gpu/device.js').Gpu | null, named?: string[], whyNotGpu?: string, trial?: { why: string }, fallback?: boolean,
 *   logOptions?: import('../common/log.js').LogOptions }} SessionHost
 */
/**
 * @typedef {object} Compiler
 * @property {string} info JSON: types of inputs and outputs
 * @property {string} needs JSON: `Needs`, which grow while Programs are compiled
 * @property {string} timings JSON: milliseconds of phases
 * @property {number} [compiled] number of Programs that it has compiled
 * @property {boolean} [canCompile] false: it has the Programs of a file, and no model
 * @property {boolean} [hasFallback] whether one of these runs without the GPU that another one needs
 * @property {boolean} [shared] whether these use shared memory
 * @property {() => MaybePromise<ProgramData | null>} main the Program for all feeds, if there is one
 * @property {(feeds: object, stop: Stop | null, outputs?: string[]) => MaybePromise<ProgramData | null>} specialise the Program for these
 *   feeds, or for some outputs, if the feeds suffice for these alone; null if `needs` has grown
 * @property {(feeds: object, stop: Stop | null) => MaybePromise<ProgramData | null>} [forSizes] the Program for the dims of these feeds
 *   alone, which the others refused; null if it is one of these
 * @property {(nodes: Record<string, string>) => MaybePromise<void>} leaveGpu compiles without the GPU from now on, or without it for
 *   these nodes; nodes: with reasons
 * @property {(feeds: object) => MaybePromise<ProgramData[]>} allResults Programs with the GPU and without it, whose outputs are the
 *   results of all kernels
 * @property {(feeds: object) => MaybePromise<ProgramData | null>} [halfRanges] measures half floats (pyruntime/compiler/half_ranges.py)
 * @property {(feeds: object) => MaybePromise<Tuning>} [tuning] Programs with other schedules
 * @property {(feeds: object | null, node: string, code: boolean) => MaybePromise<string>} [listing] kernels, loops and code as text
 * @property {(providers: readonly string[], assume: readonly string[]) => MaybePromise<ProgramData>} [portable] the Programs for all feeds as a file has them
 * @property {(names: string[]) => MaybePromise<void>} [splitDims] treats dims of one of these names as separate dims
 * @property {() => MaybePromise<string>} [exportPlan] JSON: the pieces of the model's file with new weights (pyruntime/onnx/write.py)
 * @property {{ repeated<T>(model: object, work: () => Promise<T>): Promise<T>, moved: import('../runtime/recovery.js').Move[] }} [added]
 *   providers that users add: repeats work after their faults; what has left them
 * @property {import('../run/environment.js').HostSteps['host']} host
 * @property {() => void} destroy
 */
/**
 * Measures Programs against the standard Program: `next` returns the next Program or null, `measured` takes the best milliseconds of
 * a run and of each node's kernels (pyruntime/compiler/tuning.py).
 * @typedef {{ run: number, kernels: Record<string, number> }} Times
 * @typedef {object} Tuning
 * @property {ProgramData} standard
 * @property {() => ProgramData | null} next
 * @property {(times: [standard: Times, other: Times]) => void} measured
 * @property {() => Omit<import('../common/protocol.js').Tuned, 'took'>} result
 * @property {() => void} destroy
 */
/** Reads the weights of a Program. @typedef {(program: ProgramData) => MaybePromise<ReadFile>} WeightsOf */
export {};
