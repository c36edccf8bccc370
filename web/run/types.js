// Types of the executor, as its parts use it, and of the GPU, as the executor uses it (web/gpu implements them).

/** @import { TensorValue } from '../common/program.js' */
/** @import { Fetch, WireTensor, WireValue } from '../common/protocol.js' */
/** @import { Stop } from '../common/stop.js' */
/** @import { State } from '../runtime/states.js' */
/** A step that the GPU has prepared. @typedef {{ dispatched: import('../common/program.js').Call[] }} PreparedStep */
/** @template T @typedef {import('../common/maybe_promise.js').MaybePromise<T>} MaybePromise */

/**
 * Runs a Program (executor.js). hosts: strings of the current run by buffer; hostConstants: strings of constants by buffer.
 * @typedef {object} Executor
 * @property {import('../common/program.js').ProgramData} program
 * @property {import('../common/program.js').Header} header
 * @property {import('./memory.js').Memory} memory
 * @property {import('../runtime/planner.js').Planner} plan
 * @property {boolean} hasChangedStates
 * @property {import('../threads/mailbox.js').Code} code
 * @property {GpuRunner | null} gpu
 * @property {Map<number, (string | number)[]>} hosts
 * @property {Map<number, (string | number)[]>} hostConstants
 * @property {Stop | null} stop
 * @property {import('../threads/pool.js').ThreadTeam | null} team
 * @property {(step: import('../common/program.js').WasmStep, error: unknown) => never} refuse
 * @property {() => void} checkFaults
 * @property {(state: State, buffer: number) => Uint8Array} bytes
 * @property {(state: State, value: TensorValue) => number[]} readNumbers
 * @property {(number: number, state: State) => MaybePromise<State>} runBlock
 * @property {(step: import('../common/program.js').Step, state: State, key: string) => MaybePromise<State>} runStep
 */
/**
 * Runs the GPU steps of one Program.
 * @typedef {import('../runtime/planner.js').Gpu & {
 *   gpu: { tensors: { size: number } },
 *   memory: { size: number, hasPendingErrors: boolean, growths: readonly unknown[], flush(): void, throwErrors(): Promise<void>,
 *     write(address: number, bytes: Uint8Array, dtype: string): void },
 *   timer: { run(step: PreparedStep, stop: Stop | null): Promise<void>, read(): Promise<void> } | null,
 *   transfers(executor: Executor): Transfers,
 *   run(step: PreparedStep): void,
 *   runInPortions(step: PreparedStep, stop: Stop): Promise<void>,
 *   beginTiming(found: Timed[], repeat: number): void,
 *   endTiming(): void,
 *   releaseBorrowed(): void,
 *   release(): void,
 * }} GpuRunner
 */
/**
 * Copies tensors between linear memory and the GPU, and passes GPU tensors in and out of runs.
 * @typedef {object} Transfers
 * @property {(name: string, item?: number) => boolean} keepsInput
 * @property {(feeds: Record<string, WireValue>, fetches: Record<string, Fetch>) => Promise<void>} prepare
 * @property {(feeds: Record<string, WireValue>, fetches: Record<string, Fetch>) => void} beginRun
 * @property {(feeds: Record<string, WireValue>, inputs: import('../common/program.js').Input[]) => Map<number, number> | undefined} beginCaches
 * @property {(step: import('../common/program.js').CopyStep, state: State, key: string) => MaybePromise<State>} run
 * @property {(step: import('../common/program.js').GpuStep, after: State) => void} createOutputs
 * @property {(name: string, value: TensorValue, state: State) => WireTensor | null} output
 * @property {() => void} endRun
 * @property {() => void} abandon
 */
/**
 * The time of a kernel call. start: milliseconds after the run's first kernel, by the GPU's clock.
 * @typedef {{ call: import('../common/program.js').Call, place: 'wasm' | 'webgpu', milliseconds: number, start?: number }} Timed
 */
export {};
