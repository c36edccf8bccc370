// Types of what the worker or the page provides to an executor.

/** @import { Env } from '../common/dims.js' */
/** @import { ProgramData } from '../common/program.js' */
/** @import { HostArray } from '../common/protocol.js' */
/** @import { Stop } from '../common/stop.js' */
/**
 * Reads a part of a file: the model's own (""), or one of its external data. into: reads to `target`, which takes less memory; until:
 * resolves when the first `end` bytes of a file have arrived, null if they are there.
 * @typedef {((offset: number, size: number, name?: string) => Uint8Array) & { into?: (target: Uint8Array, offset: number, name?: string) => void,
 *   until?: (end: number, name?: string) => Promise<void> | null }} ReadFile
 */
/**
 * Runs host steps, the only steps that need Python.
 * @typedef {object} HostSteps
 * @property {(program: ProgramData['python'] | undefined, step: { id: number }, inputs: (HostArray | null)[], env: Env,
 *   stop: Stop | null) => import('../common/maybe_promise.js').MaybePromise<HostArray[]>} host
 */
/**
 * The environment that a Program is loaded for. shared: whether linear memory is shared; memoryLimit: its size in bytes, at most;
 * gpuTimeout: seconds to wait for the GPU.
 * @typedef {{ shared: boolean, memoryLimit?: number, gpuTimeout?: number, threads?: number, pool?: import('../threads/pool.js').ThreadPool | null,
 *   gpu?: { load(program: import('../common/program.js').ProgramData, timeout?: number): Promise<import('./types.js').GpuRunner> } | null }} Host
 */
export {};
