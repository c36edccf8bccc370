// The worker boundary: a closed list of calls, answered by id. Nothing else passes it.

import { fromPayload, InvalidInput, SessionFailed, toPayload } from './errors.js';
import { Stop, StopWords } from './stop.js';

/** @typedef {Float32Array|Float64Array|Int8Array|Uint8Array|Int16Array|Uint16Array|Int32Array|Uint32Array|BigInt64Array|BigUint64Array} NumericData */
/**
 * A tensor on the wire. Data in a SharedArrayBuffer is shared, any other is transferred; that on the GPU cannot leave the
 * place that it is in. held: what the worker calls an output that it still has, and that a later run may be fed; without
 * data then. after: the data are those behind the first rows of what a run was fed.
 * @typedef {{ type: string, dims: readonly number[], data: NumericData | string[] | { gpu: GPUBuffer }, held?: number, after?: After }} WireTensor
 */
/** Rows along an axis of the tensor that was fed by this name. @typedef {{ held: number, axis: number, rows: number }} After */
/** @typedef {WireTensor | 'gpu' | null} Fetch an output: the tensor to fill, a new one on the GPU, a new one on the CPU */
/** @typedef {WireTensor | WireTensor[] | null} WireValue a sequence is a list, an absent optional is null */
/** @typedef {{ url: string, keep?: boolean | string } | { bytes: Uint8Array } | { blob: Blob } | { handle: FileSystemFileHandle } | { stream: ReadableStream<Uint8Array> }} Origin where bytes come from; keep: stored_models.js */
/** @typedef {{ phase: 'boot'|'download'|'compile'|'init', loaded: number, total: number }} Progress total 0: unknown */
/**
 * An input or an output; `dtype` null is any type, `shape` null any rank, a dim null or a name a free one;
 * both are of the items where it is a sequence. classes: of an output whose rows become maps; map: of which the input is a row.
 * @typedef {{ name: string, dtype: string | null, shape: (number|string|null)[] | null, optional?: boolean, sequence?: boolean, hasDefault?: boolean, classes?: (string|number)[], map?: MapInfo }} ValueInfo
 */
/**
 * input: its name; key: type of its keys; keys: of the row's places, or null, where all values come: sorted by their keys, or
 * at the places that their keys tell in a row of this length.
 * @typedef {{ input: string, key: 'string' | 'int64', keys: (string | number)[] | null, length: number | null }} MapInfo
 */
/** @typedef {{ asm: string, wasm: string, rest: string, image: string, stdlib: string, stdlibRest: string, engine: string }} Assets addresses of the engine's files */
/** @typedef {{ assets: Assets, prefetches: boolean, least: number, threads?: MessagePort }} OpenParams prefetches: whether `prefetched` will be called; least: severity of messages; threads: port for a page that starts threads */
/** A file of the interpreter that the page fetched; null if it did not. @typedef {{ module: WebAssembly.Module | null } | { image: ArrayBuffer | null }} Prefetched */
/** @typedef {{ download: number, compile: number, init: number }} Timings milliseconds */
/**
 * @typedef {object} CreateParams
 * @property {Origin} model
 * @property {{ path: string, origin: Origin }[]} external
 * @property {number} threads how many may work on a run, the worker itself among them
 * @property {{ executionProviders?: string[], uncached?: boolean, fixedSimd?: boolean, [option: string]: unknown }} options that a Program depends on
 * @property {Limits} limits
 * @property {string[]} refusedForPrograms options that a compiled Program cannot honour
 * @property {import('./log.js').LogOptions} [logOptions] of messages of the session
 * @property {{ least: number, adapter: GPURequestAdapterOptions }} env
 * @property {Record<string, unknown>} [gpu] of the page: the session is compiled for it, and runs in the page
 */
/** Session options that limit time and memory. @typedef {{ memoryLimit?: number, [option: string]: unknown }} Limits */
/**
 * threads: that its Program is for; gpu: whether it runs on one; compiled: of a session in the page.
 * @typedef {{ session: number, inputs: ValueInfo[], outputs: ValueInfo[], threads: number, gpu: boolean, timings: Timings, compiled: Compiled | null }} CreateResult
 */
/** What a compiler knows of a model, as JSON (web/session/compiler.js). @typedef {{ info: string, needs: string, timings: string }} Compiled */
/** What is told of a model before it is downloaded (pyruntime/compiler/inspection.py). @typedef {{ memory: { linear: number } | null, size: number, fetched: number, fits: { here: boolean | null, why: string }, [entry: string]: unknown }} Inspection */
/** How a session in the page has its model compiled. @typedef {'main' | 'specialise' | 'fallBackToWasm' | 'allResults' | 'splitDims'} How */
/** number: its name in `host` and `forget`; timings: JSON. @typedef {{ number: number, header: import('./program.js').Header, blob: Uint8Array, timings: string }} CompiledProgram */
/** A step that Python runs, of a Program in the page. @typedef {{ session: number, program: number, id: number, inputs: unknown[], symbols: [string, number][] }} HostParams */
/** @typedef {{ session: number, feeds: Record<string, WireValue>, fetches: Record<string, Fetch>, profile?: boolean }} RunParams profile: kernels are timed */
/**
 * milliseconds: of the run, without waiting for its turn; stale: there was none, for it was fed what is not held any more.
 * @typedef {{ outputs: Record<string, WireValue>, milliseconds: number, kernels: KernelTiming[], stale?: boolean }} RunResult
 */
/**
 * What Programs are compiled for besides ranks: the values, and the dims, of the inputs of these names. One is for all
 * feeds that leave out the inputs `defaults`, unless that is null.
 * @typedef {{ values: string[], dims: string[], defaults: string[] | null }} Needs
 */

/**
 * A Program for the page; weights: what it reads of files, by `source:offset`.
 * @typedef {object} Portable
 * @property {string} key of the feeds it is for (values.js), made with needs
 * @property {Needs | null} needs
 * @property {Omit<import('./program.js').ProgramData, 'python'>} program
 * @property {Map<string, Uint8Array>} weights
 * @property {boolean} shared whether its code wants shared memory
 */
/**
 * Bytes and counts in the worker; threads: besides the worker, teams: programs that they have code of.
 * @typedef {{ heap: number, arenas: number, sessions: number, threads: number, teams: number }} WorkerStats
 */
/**
 * One call; bytes: sizes of its buffers, 0 unknown; start: milliseconds after the run's first kernel on the GPU, by its clock.
 * @typedef {{ node: string, kernel: string, place: 'wasm' | 'webgpu', milliseconds: number, start?: number, bytes: number }} KernelTiming
 */

/**
 * What was measured; times in milliseconds. choices: an option of later sessions.
 * @typedef {object} Tuned
 * @property {Record<string, Record<string, number>>} choices
 * @property {number | null} before of a run by default, null before any was measured
 * @property {number | null} after
 * @property {{ nodes: string[], chosen: Record<string, number>, before: number, after: number }[]} kernels
 * @property {number} took
 */

/**
 * The calls: name to parameters and result.
 * @typedef {object} Calls
 * @property {{ params: Prefetched, result: null }} prefetched one call for each
 * @property {{ params: OpenParams, result: null }} open the first; answered when Python could not be started, before all who wait for it, and never else
 * @property {{ params: { lock: string }, result: boolean }} hold holds a lock for as long as the worker lives, if it can
 * @property {{ params: null, result: { python: string, milliseconds: number } }} boot starts Python
 * @property {{ params: CreateParams, result: CreateResult }} create
 * @property {{ params: CreateParams, result: Inspection }} inspect
 * @property {{ params: RunParams, result: RunResult }} run
 * @property {{ params: { session: number }, result: Portable | null }} program the one that ran last
 * @property {{ params: { session: number, feeds: Record<string, WireValue> }, result: KernelTiming[] }} profile
 * @property {{ params: { session: number }, result: null }} release
 * @property {{ params: { session: number }, result: null }} trim gives back memory that larger runs took
 * @property {{ params: { session: number }, result: Record<string, unknown> }} memory
 * @property {{ params: { session: number }, result: Record<string, unknown> }} explain
 * @property {{ params: { session: number, feeds: Record<string, WireValue>, tolerance: number }, result: Record<string, unknown> }} verify
 * @property {{ params: { session: number, feeds: Record<string, WireValue>, seconds: number }, result: Tuned }} tune
 * @property {{ params: { session: number, gpu: Record<string, unknown> }, result: CreateResult }} moveToPage opens another session of the model, for the GPU of the page
 * @property {{ params: { session: number, how: How, given: unknown }, result: { programs: (CompiledProgram | null)[], compiled: Compiled } }} compile
 * @property {{ params: { session: number, places: [source: string, offset: number, size: number][] }, result: Uint8Array[] }} weights
 * @property {{ params: HostParams, result: { dims: number[], data: (string | number)[] }[] }} host
 * @property {{ params: { session: number, program: number }, result: null }} forget
 * @property {{ params: null, result: WorkerStats }} stats
 * @property {{ params: { code: string, args: unknown }, result: { value: unknown, providers: string[] } }} python
 */

/**
 * stop: the call may be stopped; Python looks at `interrupt`, if there is shared memory.
 * @typedef {{ id: number, call: keyof Calls, params: any, stop?: { interrupt: Uint8Array | null } }} Request
 */
/** @typedef {Request | { stop: number }} Message stop: that call is wanted no more */
/** @typedef {{ id: number, result: unknown } | { id: number, error: import('./errors.js').ErrorPayload }} Outcome */
/** @typedef {Outcome | { id: number, progress: Progress } | { id: number, memory: SharedArrayBuffer }} Reply memory: where to find STOP */
/** @typedef {{ resolve: (r: any) => void, reject: (e: Error) => void, progress?: (p: Progress) => void, words: StopWords | null }} Pending */
/** Calls its argument when a call is wanted no more; gives what ends that. @typedef {(stop: () => void) => () => void} Watch */

/** @param {WireTensor['data'] | undefined} data @returns {GPUBuffer | null} of a tensor on the GPU */
export const gpuBuffer = (data) => (data && 'gpu' in data ? data.gpu : null);

/** The page's end: sends calls, and answers or fails their promises. */
export class Caller {
  /** @param {Pick<Worker, 'postMessage' | 'terminate' | 'onmessage'> & { ref?: () => void, unref?: () => void }} worker */
  constructor(worker) {
    this.worker = worker;
    this.next = 1;
    /** @type {Map<number, Pending>} */
    this.pending = new Map();
    /** Number of the call that is answered in the end, if ever. */
    this.opening = 0;
    /** Why the worker is gone, and what to do; whether it ever answered. */
    this.gone = '';
    this.hint = '';
    this.heard = false;
    this.end = new AbortController(); // once it is gone
    worker.onmessage = (event) => this.receive(/** @type {Reply} */ (event.data));
  }

  /**
   * @template {keyof Calls} K
   * @param {K} call
   * @param {Calls[K]['params']} params
   * @param {{ transfer?: Transferable[], progress?: (p: Progress) => void, watch?: Watch | null }} [how] watch: it may be stopped
   * @returns {Promise<Calls[K]['result']>}
   */
  call(call, params, { transfer = [], progress, watch } = {}) {
    if (this.gone) return Promise.reject(this.failure());
    const id = this.next++;
    if (call === 'open') this.opening = id;
    else this.worker.ref?.();
    const words = watch ? new StopWords(id) : null;
    const stop = words ? { interrupt: words.interrupt } : undefined;
    const answer = new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject, progress, words });
      try {
        this.worker.postMessage({ id, call, params, stop }, transfer);
      } catch (error) {
        this.pending.delete(id);
        reject(new InvalidInput(`it cannot be sent to the worker: ${/** @type {Error} */ (error).message}`, { cause: error }));
      }
    });
    return watch ? answer.finally(watch(() => this.stop(id))) : answer;
  }

  /** The answer of a call is wanted no more. @param {number} id */
  stop(id) {
    const waiting = this.pending.get(id);
    if (!waiting?.words || waiting.words.stopped) return;
    this.worker.postMessage({ stop: id });
    waiting.words.stop();
  }

  /** @param {Reply} reply */
  receive(reply) {
    this.heard = true;
    const waiting = this.pending.get(reply.id);
    if (!waiting) return;
    if ('progress' in reply) return waiting.progress?.(reply.progress);
    if ('memory' in reply) return waiting.words?.take(reply.memory);
    this.pending.delete(reply.id);
    if ('error' in reply) waiting.reject(fromPayload(reply.error));
    else waiting.resolve(reply.result);
    if (this.pending.size <= Number(this.pending.has(this.opening))) this.worker.unref?.();
  }

  /**
   * The worker is gone: what is in flight and what comes fails with the reason.
   * @param {string} reason @param {string} hint @param {Error} [error] in place of it, for what is in flight
   */
  fail(reason, hint, error) {
    this.gone = reason;
    this.hint = hint;
    for (const { reject } of this.pending.values()) reject(error ?? this.failure());
    this.pending.clear();
    this.end.abort();
  }

  /** What every call gets once the worker is gone. */
  failure() {
    return new SessionFailed(`the worker is gone: ${this.gone}`, { hint: this.hint });
  }
}

/**
 * What a handler answers; `transfer` lists buffers that move to the page.
 * @template {keyof Calls} K
 * @typedef {{ result: Calls[K]['result'], transfer?: Transferable[] }} Answer
 */
/** @typedef {{ [K in keyof Calls]: (params: Calls[K]['params'], progress: (p: Progress) => void, stop: Stop | null) => Promise<Answer<K>> | Answer<K> }} Handlers */

/**
 * The worker's end: answers every request with a result or an error.
 * @param {Worker | typeof globalThis} port
 * @param {Handlers} handlers
 */
export function answer(port, handlers) {
  const worker = /** @type {Worker} */ (port);
  /** Of calls in progress that may be stopped. @type {Map<number, Stop>} */
  const stops = new Map();
  worker.onmessage = async (event) => {
    const message = /** @type {Message} */ (event.data);
    if (!('id' in message)) return stops.get(message.stop)?.controller.abort();
    const { id, call, params } = message;
    const stop = message.stop ? new Stop(id, message.stop.interrupt, (memory) => worker.postMessage({ id, memory })) : null;
    if (stop) stops.set(id, stop);
    try {
      const handler = /** @type {(p: any, progress: (p: Progress) => void, stop: Stop | null) => any} */ (handlers[call]);
      const { result, transfer = [] } = await handler(params, (progress) => worker.postMessage({ id, progress }), stop);
      worker.postMessage({ id, result }, transfer);
    } catch (error) {
      worker.postMessage({ id, error: toPayload(error) });
    } finally {
      stops.delete(id);
    }
  };
}
