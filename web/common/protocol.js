// The messages between page and worker: a closed list of calls, answered by id.

import { fromPayload, InvalidInput, SessionFailed, toPayload } from './errors.js';
import { hasSharedMemory } from './shared_memory.js';
import { Stop, StopWords } from './stop.js';

/** @import { Port } from './platform.js' */

/**
 * @typedef {Float32Array|Float64Array|Int8Array|Uint8Array|Int16Array|Uint16Array|Int32Array|Uint32Array|BigInt64Array
 *   |BigUint64Array} NumericData
 */
/**
 * A tensor in a message. Data in a SharedArrayBuffer is shared, other data is transferred; a GPU tensor cannot leave its
 * thread. held: the number of a resident output, which a later run can be fed; its data is then absent. after: the data
 * follows the first rows of a tensor that the run was fed.
 * @typedef {{ type: string, dims: readonly number[], data: NumericData | string[] | InBuffer, held?: number, after?: After }} WireTensor
 */
/** A GPU tensor. room: if its buffer has capacity for more rows. @typedef {{ gpu: GPUBuffer, room?: SharedRoom }} InBuffer */
/**
 * One for each tensor in a buffer that tensors share. places: rows along the axis for which the buffer has space; rows: of this tensor;
 * undo: number of last places that keep rows of this tensor that a run overwrote; isLost: a run that failed may have overwritten some.
 * @typedef {{ axis: number, places: number, rows: number, undo?: number, isLost?: boolean }} SharedRoom
 */
/** The first rows, along an axis, of a resident output. @typedef {{ held: number, axis: number, rows: number }} After */
/**
 * For an output: the tensor to fill, 'gpu' for a new GPU tensor, null for a new one on the CPU.
 * @typedef {WireTensor | 'gpu' | null} Fetch
 */
/** A list is a sequence; null is an absent optional. @typedef {WireTensor | WireTensor[] | null} WireValue */
/**
 * The source of a file's bytes. keep: see storage/stored_models.js; fetch: in the worker, if the page fetches the file; port: to which the
 * worker sends { from, to } and gets these bytes.
 * @typedef {{ url: string, keep?: boolean | string, fetch?: FetchFile } | { bytes: Uint8Array } | { blob: Blob } | { handle: FileSystemFileHandle }
 *   | { stream: ReadableStream<Uint8Array> } | { port: MessagePort, size: number }} Origin
 */
/** @typedef {(url: string, init?: RequestInit) => Promise<Response>} FetchFile */
/** Bytes of memory of a kind. @typedef {{ linear: number, gpu: number }} Held */
/** The page's limits, Infinity for none, and what its own thread holds. @typedef {{ limits: Held, elsewhere: Held }} PageMemory */
/** total: 0 if unknown. @typedef {{ phase: 'boot'|'download'|'compile'|'init', loaded: number, total: number }} Progress */
/** Of a session (docs/design/sessions.md#states). @typedef {'running' | 'ready' | 'recovering' | 'failed' | 'released'} State */
/** What a call reports before it ends. state: after a fault. @typedef {Progress | { state: State }} Notice */
/**
 * What executors of a session count (pyruntime/runtime/metrics.py).
 * @typedef {{ recovered: number, compiled: number, runs: number, planned: number, bytes: number }} EngineCounts
 */
/**
 * An input or an output. dtype: null for any type; shape: null for any rank, a name or null for a free dim; both describe
 * the items of a sequence. classes: the map keys for an output whose rows become maps; map: for an input whose row is a map.
 * @typedef {{ name: string, dtype: string | null, shape: (number|string|null)[] | null, optional?: boolean, sequence?: boolean,
 *   hasDefault?: boolean, classes?: (string|number)[], map?: MapInfo }} ValueInfo
 */
/**
 * input: name of the map; key: type of its keys; keys: one for each element of the row. With null all values go into the row:
 * sorted by key, or with each key as the index in a row of this length.
 * @typedef {{ input: string, key: 'string' | 'int64', keys: (string | number)[] | null, length: number | null }} MapInfo
 */
/**
 * Addresses of the engine's files.
 * @typedef {{ asm: string, wasm: string, rest: string, image: string, stdlib: string, stdlibRest: string, engine: string, training: string }} Assets
 */
/**
 * prefetches: whether the page will call `prefetched`; least: severity of messages; threads: port of a page that starts threads;
 * memory: the page's; tab: of a worker for several pages, the lock that the page holds until it ends.
 * @typedef {{ assets: Assets, prefetches: boolean, least: number, threads?: MessagePort, memory: PageMemory, tab: string }} OpenParams
 */
/**
 * A file of the interpreter that the page fetched; null if it failed.
 * @typedef {{ module: WebAssembly.Module | null } | { image: ArrayBuffer | null }} Prefetched
 */
/** Milliseconds. @typedef {{ download: number, compile: number, init: number }} Timings */
/**
 * @typedef {object} CreateParams
 * @property {Origin} model
 * @property {{ path: string, origin: Origin }[]} external
 * @property {MessagePort} [fetchPort] to which the worker sends requests for files that the page fetches
 * @property {number} threads for a run, at most, including the worker itself
 * @property {boolean} shared whether the page can share memory: it may run the session's Programs, too
 * @property {{ executionProviders?: string[], providerOptions?: Record<string, object>, uncached?: boolean, fixedSimd?: boolean, [option: string]: unknown }} options that a Program depends on
 * @property {string[]} [named] the providers that the caller named, "auto" among them; `options` has those that it stands for
 * @property {boolean} isAuto whether the GPU is used only if runs on it are faster
 * @property {boolean} allowsSoftware whether the GPU may be an adapter that computes on the CPU, although WebAssembly is named, too
 * @property {Limits} limits
 * @property {boolean} fallback whether the session may move from the GPU to the next provider
 * @property {string[]} refusedForPrograms options that cannot apply to a compiled Program
 * @property {import('./log.js').LogOptions} [logOptions] of messages of the session
 * @property {{ least: number, adapter: GPURequestAdapterOptions }} env
 * @property {Record<string, unknown>} [gpu] the page's: the session is compiled for it and runs in the page
 */
/** Session options that limit time and memory. @typedef {{ memoryLimit?: number, gpuTimeout?: number, [option: string]: unknown }} Limits */
/**
 * What an author wrote about a model; null for a version that it does not have.
 * @typedef {{ producerName: string, producerVersion: string, graphName: string, domain: string, description: string,
 *   graphDescription: string, version: number | null, irVersion: number, opsetImports: Record<string, number>,
 *   customMetadataMap: Record<string, string> }} ModelMetadata
 */
/**
 * uses: of outputs that do not need all inputs, the inputs that they need; unused: inputs of the model that no output of
 * the session needs; metadata: null for a Program from a file without it.
 * @typedef {{ uses: Record<string, string[]>, unused: string[], metadata: ModelMetadata | null, training?: TrainingInfo,
 *   adapters?: AdaptersInfo }} About
 */
/**
 * Of a session with adapters (pyruntime/training/adapters/adapter_inputs.py, `described`). rowsA, rowsB: number of rows of
 * the two matrices that runs feed; modules: by name, where a module's rows are ([first_a, rows_a, first_b, rows_b]); slots:
 * by name, the model's own inputs for A and B of a module; hasMagnitudes: whether runs also feed magnitudes of DoRA;
 * defaults: values of such inputs in runs without adapters (data: base64). places: where the tensors of each adapter go,
 * unless the session is of a Program.
 * @typedef {object} AdaptersInfo
 * @property {number} rowsA
 * @property {number} rowsB
 * @property {boolean} [hasMagnitudes]
 * @property {Record<string, number[][]>} modules
 * @property {Record<string, [string, string]>} slots
 * @property {Record<string, { dtype: string, dims: number[], data: string }>} defaults
 * @property {Record<string, unknown>} [places] each a `Places` of web/runtime/adapter_places.js
 */
/**
 * Of a session that trains (pyruntime/training/graph/training_graph.py, `report`). weights: those that steps change, of which the first `count` are
 * trained and the others are running statistics; targets: types of the feeds for the loss, by name; outputs: of the model
 * @typedef {object} TrainingInfo
 * @property {{ name: string, shape: number[], dtype: string }[]} weights
 * @property {number} count
 * @property {Record<string, string>} reasons why weights are trained
 * @property {Record<string, string>} targets
 * @property {string[]} outputs
 * @property {boolean} accumulates
 * @property {string} optimizer
 * @property {Record<string, number>} settings
 * @property {string} schedule
 * @property {Record<string, number>} timing settings of the schedule
 * @property {number} seed
 * @property {{ names: string[], config: string } | null} lora names of the adapters' weights, and PEFT's configuration
 * @property {Record<string, string>} stepOutputs outputs of the model that steps also compute: names in the graph of a step
 * @property {TrainingArtifacts} [artifacts]
 * @property {number} lossScale 0: it adapts
 * @property {string[]} copies prefixes of the states that begin with the values of weights
 * @property {Record<string, number[]>} moments shapes of the optimiser's states that do not have their weight's
 */
/**
 * Of onnxruntime-training (pyruntime/training/graph/artifacts.py). outputs: the loss is first; place: offset and size in the checkpoint;
 * corrects: whether the optimiser corrects its moments; moments: name of the state, offset, size
 * @typedef {object} TrainingArtifacts
 * @property {string[]} inputs
 * @property {string[]} outputs
 * @property {{ name: string, shape: number[], place: [number, number] }[]} parameters
 * @property {boolean} corrects
 * @property {number} rate
 * @property {number} step
 * @property {[string, number, number][]} moments
 */
/**
 * threads: for which its Program is compiled; gpu: whether it runs on a GPU; compiled: for a session in the page.
 * @typedef {{ session: number, inputs: ValueInfo[], outputs: ValueInfo[], about: About, threads: number, gpu: boolean, timings: Timings,
 *   compiled: Compiled | null }} CreateResult
 */
/**
 * A compiler's information about a model, as JSON, and the number of Programs that it has compiled (web/session/compiler.js).
 * @typedef {{ info: string, needs: string, timings: string, compiled: number,
 *   canCompile?: boolean, hasFallback?: boolean, shared?: boolean }} Compiled
 */
/**
 * The report on a model before its download (pyruntime/compiler/inspection.py).
 * @typedef {{ memory: { linear: number, further: number } | null, size: number, fetched: number, fits: { here: boolean | null, why: string },
 *   [entry: string]: unknown }} Inspection
 */
/**
 * The kinds of compilation that a session in the page requests.
 * @typedef {'main' | 'specialise' | 'forSizes' | 'leaveGpu' | 'allResults' | 'halfRanges' | 'splitDims'} How
 */
/**
 * number: names it in the calls `host` and `forget`; timings: JSON.
 * @typedef {{ number: number, header: import('./program.js').Header, blob: Uint8Array, timings: string }} CompiledProgram
 */
/**
 * values: bytes by name of the weight; how: replace replaces all; export gives the model's file with the weights, as
 * "model"; places reads parts of a file; alone frees the memory of other Programs before each that runs; steps makes runs, and
 * gives this output of those that were made, as "results".
 * @typedef {{ output: string, runs: Record<string, WireValue>[] }} RunsOfSteps
 * @typedef {{ session: number, how: 'read' | 'update' | 'replace' | 'export' | 'places' | 'alone' | 'steps', values: Record<string, Uint8Array> | RunsOfSteps }} TrainParams
 */
/**
 * Parameters of a call of `quantize`. open: begins a quantisation with the options in `quantising`, and returns its number; next: takes
 * the answer to the last step (null at first), and returns the next step; read: returns bytes of the file that the step has made; end:
 * frees the quantisation
 * @typedef {({ how: 'open', quantising: object } & CreateParams) | { how: 'next', number: number, answer: unknown }
 *   | { how: 'read', number: number, offset: number, size: number } | { how: 'end', number: number }} QuantiseParams
 */
/**
 * What the page runs (pyruntime/quantization/page_quantizer.py): a small model, or the file of this size with each sample.
 * @typedef {{ kind: 'run', model: Uint8Array, feeds: Record<string, [dtype: string, dims: number[], data: Uint8Array]> }} QuantiseRun
 * @typedef {{ kind: 'expected' | 'numbers' | 'each', size: number, models: Record<string, Uint8Array>, most: Record<string, number> }} QuantiseMeasure
 * @typedef {QuantiseRun | QuantiseMeasure | { kind: 'done', size: number, report: { layers: object[], errors: Record<string, number> } }} QuantiseStep
 */
/** A value outside linear memory. @typedef {{ dims: number[], data: (string | number)[] }} HostArray */
/**
 * A step of a Program in the page that Python runs.
 * @typedef {{ session: number, program: number, id: number, inputs: (HostArray | null)[], symbols: [string, number][] }} HostParams
 */
/**
 * profile: whether to time kernels.
 * @typedef {{ session: number, feeds: Record<string, WireValue>, fetches: Record<string, Fetch>, profile?: boolean }} RunParams
 */
/**
 * milliseconds: duration of the run, without the wait before it; stale: the run did not start, because a feed is no
 * longer a resident output.
 * @typedef {{ outputs: Record<string, WireValue>, milliseconds: number, kernels: KernelTiming[], stale?: boolean }} RunResult
 */
/**
 * Inputs on whose values, or dims, Programs depend. On other inputs they depend by rank only. Unless `defaults` is
 * null, feeds without these inputs share one Program.
 * @typedef {{ values: string[], dims: string[], defaults: string[] | null }} Needs
 */

/**
 * A Program for the page. weights: the parts of files that it reads, by `source:offset`.
 * @typedef {object} Portable
 * @property {string} key of the feeds that it can run (programKey in flat_feeds.js)
 * @property {Needs | null} needs
 * @property {Omit<import('./program.js').ProgramData, 'python'>} program
 * @property {Map<string, Uint8Array>} weights
 * @property {boolean} shared whether its code needs shared memory
 */
/**
 * Bytes and counts in the worker. threads: number without the worker itself; teams: number of Programs that the threads
 * have instantiated.
 * @typedef {{ heap: number, arenas: number, gpu: number, sessions: number, threads: number, teams: number,
 *   downloads: readonly { readonly url: string, readonly bytes: number }[] }} WorkerStats
 */
/**
 * One call. bytes: size of its buffers, 0 if unknown; start: milliseconds after the run's first kernel on the GPU, by
 * its clock.
 * @typedef {{ node: string, kernel: string, place: 'wasm' | 'webgpu', milliseconds: number, start?: number, bytes: number }} KernelTiming
 */

/**
 * Bytes that hold the output of the node `name` from the call `start` until before the call `end`.
 * @typedef {{ name: string, memory: 'linear' | 'gpu', address: number, size: number, start: number, end: number }} BufferSpan
 */
/**
 * Measurements in milliseconds. choices: an option for later sessions.
 * @typedef {object} Tuned
 * @property {Record<string, Record<string, number | string>>} choices
 * @property {number | null} before of a run with default schedules, null if not measured
 * @property {number | null} after
 * @property {{ nodes: string[], chosen: Record<string, number>, before: number, after: number }[]} kernels
 * @property {number} took
 */

/**
 * The calls: name to parameters and result.
 * @typedef {object} Calls
 * @property {{ params: Prefetched, result: null }} prefetched one call for each file
 * @property {{ params: OpenParams, result: null }} open the first call; answered only if Python failed to start, before the calls that wait for Python
 * @property {{ params: { lock: string }, result: boolean }} hold takes a lock until the worker ends; whether it could
 * @property {{ params: null, result: { python: string, milliseconds: number } }} boot starts Python
 * @property {{ params: CreateParams, result: CreateResult }} create
 * @property {{ params: CreateParams, result: Inspection }} inspect
 * @property {{ params: QuantiseParams, result: number | QuantiseStep | Uint8Array | null }} quantise
 * @property {{ params: RunParams, result: RunResult }} run
 * @property {{ params: { session: number }, result: Portable | null }} program the Program that ran last
 * @property {{ params: { session: number, feeds: Record<string, WireValue>, repeat: number }, result: KernelTiming[] }} profile
 * @property {{ params: { session: number }, result: null }} release
 * @property {{ params: { session: number }, result: null }} trim frees memory that larger runs needed
 * @property {{ params: { session: number, dims: Record<string, number | number[]> }, result: null }} prepare takes memory for runs of these sizes
 * @property {{ params: TrainParams, result: Record<string, Uint8Array> }} train reads or writes weights of a session that trains
 * @property {{ params: { session: number }, result: Record<string, unknown> }} memory
 * @property {{ params: { session: number, feeds: Record<string, WireValue> }, result: BufferSpan[] }} timeline
 * @property {{ params: { session: number }, result: Record<string, unknown> }} explain
 * @property {{ params: { session: number }, result: EngineCounts }} metrics
 * @property {{ params: { session: number, feeds: Record<string, WireValue>, tolerance: number, ranges: boolean }, result: Record<string, unknown> }} verify
 * @property {{ params: { session: number, feeds: Record<string, WireValue>, seconds: number }, result: Tuned }} tune
 * @property {{ params: { session: number, feeds: Record<string, WireValue>, forAll: boolean, node: string, code: boolean }, result: string }} listing
 * @property {{ params: { session: number, providers: readonly string[], assume: readonly string[] }, result: Uint8Array }} export
 * @property {{ params: { session: number, gpu: Record<string, unknown> }, result: CreateResult }} moveToPage opens another session of the model, for the GPU of the page
 * @property {{ params: { session: number, how: How, given: unknown, outputs?: string[] }, result: { programs: (CompiledProgram | null)[], compiled: Compiled } }} compile
 * @property {{ params: { session: number, places: [source: string, offset: number, size: number][] }, result: Uint8Array[] }} weights
 * @property {{ params: HostParams, result: HostArray[] }} host
 * @property {{ params: { session: number, program: number }, result: null }} forget
 * @property {{ params: PageMemory, result: null }} memoryLimits
 * @property {{ params: null, result: WorkerStats }} stats
 * @property {{ params: { address: string }, result: string }} provider registers one in JavaScript; returns its name
 * @property {{ params: { code: string, args: unknown }, result: { value: unknown, providers: string[] } }} python
 */

/**
 * stop: the call can be stopped; interrupt: Python's interrupt buffer, with shared memory.
 * @typedef {{ id: number, call: keyof Calls, params: unknown, stop?: { interrupt: Uint8Array | null } }} Request
 */
/** stop: the call to stop. @typedef {Request | { stop: number }} Message */
/** @typedef {{ id: number, result: unknown } | { id: number, error: import('./errors.js').ErrorPayload }} Outcome */
/** memory: has the word STOP; held: what the worker holds now. @typedef {Outcome | { held: Held } | { id: number, progress: Notice } | { id: number, memory: SharedArrayBuffer }} Reply */
/**
 * @typedef {{ resolve: (result: unknown) => void, reject: (error: Error) => void, progress?: (notice: never) => void, words: StopWords | null }} Pending
 */
/** Calls `stop` when the caller stops a call. Returns a function that ends the watch. @typedef {(stop: () => void) => () => void} Watch */

/** The buffer of a GPU tensor. @param {WireTensor['data'] | undefined} data @returns {GPUBuffer | null} */
export const gpuBuffer = (data) => (data && 'gpu' in data ? data.gpu : null);

/** The page's end: sends calls and settles their promises. */
export class Caller {
  /** @param {Omit<Port, 'onerror' | 'onmessageerror'>} worker */
  constructor(worker) {
    this.worker = worker;
    this.next = 1;
    /** @type {Map<number, Pending>} */
    this.pending = new Map();
    /** Number of the call `open`, which is answered only on failure. */
    this.opening = 0;
    /** The reason why the worker has ended, and a hint. */
    this.gone = '';
    this.hint = '';
    this.hasAnswered = false;
    /** Whether other pages use the worker, too. */
    this.isForAll = false;
    /** Called when the worker has taken or freed memory. @type {(held: Held) => void} */
    this.onHeld = () => {};
    this.end = new AbortController(); // aborts when the worker has ended
    worker.onmessage = (event) => this.receive(/** @type {Reply} */ (event.data));
  }

  /** Whether messages can have shared memory. */
  get sharesMemory() {
    return hasSharedMemory() && !this.isForAll;
  }

  /**
   * @template {keyof Calls} K
   * @param {K} call
   * @param {Calls[K]['params']} params
   * @param {{ transfer?: Transferable[], progress?: (notice: never) => void, watch?: Watch | null }} [how] watch: the call can be stopped
   * @returns {Promise<Calls[K]['result']>}
   */
  call(call, params, { transfer = [], progress, watch } = {}) {
    if (this.gone) return Promise.reject(this.failure());
    const id = this.next++;
    if (call === 'open') this.opening = id;
    else this.worker.ref?.();
    const words = watch ? new StopWords(id, this.sharesMemory) : null;
    const stop = words ? { interrupt: words.interrupt } : undefined;
    const answer = new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject, progress, words });
      try {
        this.worker.postMessage({ id, call, params, stop }, transfer);
      } catch (error) {
        this.refuse(id, /** @type {Error} */ (error));
      }
    });
    return watch ? answer.finally(watch(() => this.stop(id))) : answer;
  }

  /** A call cannot be sent. @param {number} id @param {Error} cause */
  refuse(id, cause) {
    this.pending.get(id)?.reject(new InvalidInput(`cannot send the call to the worker: ${cause.message}`, { cause }));
    this.pending.delete(id);
  }

  /** Stops a call. @param {number} id */
  stop(id) {
    const waiting = this.pending.get(id);
    if (!waiting?.words || waiting.words.stopped) return;
    this.worker.postMessage({ stop: id }, []);
    waiting.words.stop();
  }

  /** @param {Reply} reply */
  receive(reply) {
    this.hasAnswered = true;
    if ('held' in reply) return this.onHeld(reply.held);
    const waiting = this.pending.get(reply.id);
    if (!waiting) return;
    if ('progress' in reply) return waiting.progress?.(/** @type {never} */ (reply.progress));
    if ('memory' in reply) return waiting.words?.take(reply.memory);
    this.pending.delete(reply.id);
    if ('error' in reply) waiting.reject(fromPayload(reply.error));
    else waiting.resolve(reply.result);
    if (this.pending.size <= Number(this.pending.has(this.opening))) this.worker.unref?.();
  }

  /**
   * The worker has ended: pending and later calls fail.
   * @param {string} reason @param {string} hint @param {Error} [error] for pending calls, instead of the reason
   */
  fail(reason, hint, error) {
    this.gone = reason;
    this.hint = hint;
    for (const { reject } of this.pending.values()) reject(error ?? this.failure());
    this.pending.clear();
    this.end.abort();
  }

  /** The error of calls after the worker's end. */
  failure() {
    return new SessionFailed(`the worker is gone: ${this.gone}`, { hint: this.hint });
  }
}

/**
 * A handler's answer. transfer: buffers that move to the page.
 * @template {keyof Calls} K
 * @typedef {{ result: Calls[K]['result'], transfer?: Transferable[] }} Answer
 */
/**
 * @typedef {{ [K in keyof Calls]:
 *   (params: Calls[K]['params'], progress: (p: Notice) => void, stop: Stop | null) => Promise<Answer<K>> | Answer<K> }} Handlers
 */

/**
 * The worker's end: answers every request with a result or an error.
 * @param {MessagePort | Worker | typeof globalThis} port
 * @param {Handlers} handlers
 */
export function answer(port, handlers) {
  const worker = /** @type {Pick<Worker, 'postMessage' | 'onmessage'>} */ (port);
  /** Stops of the running calls that can be stopped. @type {Map<number, Stop>} */
  const stops = new Map();
  worker.onmessage = async (event) => {
    const message = /** @type {Message} */ (event.data);
    if (!('id' in message)) return stops.get(message.stop)?.controller.abort();
    const { id, call, params } = message;
    const stop = message.stop ? new Stop(id, message.stop.interrupt, (memory) => worker.postMessage({ id, memory })) : null;
    if (stop) stops.set(id, stop);
    try {
      const handler = /** @type {(params: unknown, progress: (notice: Notice) => void, stop: Stop | null) => Answer<keyof Calls>} */ (handlers[call]);
      const { result, transfer = [] } = await handler(params, (progress) => worker.postMessage({ id, progress }), stop);
      worker.postMessage({ id, result }, transfer);
    } catch (error) {
      worker.postMessage({ id, error: toPayload(error) });
    } finally {
      stops.delete(id);
    }
  };
}
