// Types of what an executor is given by the place where it runs: the worker, or the page.

/**
 * A window of the model's file (""), or of an external one; into: copied to `target`, where that takes less memory.
 * @typedef {((offset: number, size: number, name?: string) => Uint8Array) & { into?: (target: Uint8Array, offset: number, name?: string) => void }} ReadFile
 */
/** A value outside linear memory. @typedef {{ dims: number[], data: (string | number)[] }} HostArray */
/**
 * What runs host steps, the only ones that take Python.
 * @typedef {object} HostSteps
 * @property {(program: any, step: import('../common/program.js').HostStep, inputs: (HostArray | null)[], env: import('./dims.js').Env, stop: import('../common/stop.js').Stop | null) => import('../common/maybe_promise.js').MaybePromise<HostArray[]>} host
 */
/** shared: linear memory is; memoryLimit: bytes that it may have; logOptions: of messages. @typedef {{ shared: boolean, logOptions?: import('../common/log.js').LogOptions, memoryLimit?: number, threads?: number, pool?: import('../threads/pool.js').ThreadPool | null, gpu?: import('../gpu/device.js').Gpu | null }} Host */
export {};
