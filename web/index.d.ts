/**
 * The public types: those of onnxruntime-common, and additions of this package. ort.d.ts adds the default export.
 * @module pyruntime
 */

import type { InferenceSession, Tensor } from 'onnxruntime-common';
import type { Drawn, Global, Picture, PictureOptions, PictureTexture, PictureType } from './pictures.js';
import type { StepResult } from './training.js';

export * from 'onnxruntime-common';

export type AdapterSource = string | URL | Uint8Array | ArrayBuffer | Blob | Response;
/** A `FileSystemFileHandle`, where there are such. */
export type FileHandle = Global<'FileSystemFileHandle', never>;
/** `Uint8Array<ArrayBuffer>`, which a Blob takes. Compilers before TypeScript 5.7 do not know that name. */
export type Bytes = ReturnType<Uint8ArrayConstructor['from']>;
/** Bytes or steps of a phase; `total` is 0 if it is unknown. */
export interface Progress {
  readonly phase: 'boot' | 'download' | 'compile' | 'init';
  readonly loaded: number;
  readonly total: number;
}

/** Milliseconds. */
export interface Timings { readonly download: number; readonly compile: number; readonly init: number }

/** A node of the model, and the kernels that compute it. */
export interface ExplainedNode {
  /** `Conv "conv1" (opset 11)`; `F "f" (opset 1) > Add "a" (opset 13)` inside a model-local function. */
  readonly node: string;
  readonly op: string;
  /** wasm, webgpu, host or control if it has steps in a run; init, plan, constant, view, fused or unused if not. */
  readonly place: string;
  /** Its generated functions, and how often a run calls them. */
  readonly kernels: readonly string[];
  readonly calls: number;
  /** The nodes that its kernels also compute; the node whose kernels compute it. */
  readonly fused: readonly string[];
  readonly into: string;
  /** Work units of the last run, and bytes that it copied from the other provider's memory; null before a run if shapes decide. */
  readonly work: number | null;
  readonly crossing: number | null;
  /** Why it is not on the first provider of the session. */
  readonly why: string;
  /** For a Loop or Scan: "written as one procedure", perhaps "…, which runs in turns", or "runs step by step" and the reason. */
  readonly loop: string;
}

/** A compiled model. */
export interface Explanation {
  /** Operators by count, and the place where most of their nodes run. */
  readonly operators: readonly { readonly op: string; readonly nodes: number; readonly place: string }[];
  /** Kernel calls by place: wasm, webgpu, host, control. */
  readonly placement: Readonly<Record<string, number>>;
  /** Kernel calls in all blocks, and the distinct functions that they call. */
  readonly kernels: number;
  readonly functions: number;
  readonly steps: number;
  /** Bytes of generated code. */
  readonly code: number;
  /** What has left the GPU after faults, and why. node: "" for all nodes; to: the provider that follows. */
  readonly moved: readonly { readonly node: string; readonly reason: string; readonly to: string }[];
  /** Milliseconds of reading and compiling: read, trace, passes, copies (of equal layers), emit, encode. */
  readonly phases: Readonly<Record<string, number>>;
  readonly nodes: readonly ExplainedNode[];
  /** The providers that the session names, those that it uses, and why the GPU is not one of them, or what 'auto' measured. */
  readonly providers: { readonly named: readonly string[]; readonly used: readonly string[]; readonly why: string };
}

/** The result of `verify`. */
export interface Verification {
  readonly ok: boolean;
  readonly tolerance: number;
  /** Number of kernel results that were compared. */
  readonly compared: number;
  /** The first kernel whose results differ. They differ most at `index`, by `error` times the tensor's largest value. */
  readonly first: null | {
    readonly node: string; readonly kernel: string; readonly index: number; readonly expected: number; readonly actual: number;
    readonly error: number;
  };
  /** The first result that is infinite or NaN on the GPU, but not on WebAssembly. */
  readonly nonFinite: Verification['first'];
}

/** The result of `verify` with `ranges`. */
export interface RangeVerification {
  readonly ok: boolean;
  /** Number of half-float values. */
  readonly checked: number;
  /** The first node whose magnitudes in float32 pass 65504, the largest half float, and the value that it makes. */
  readonly first: null | { readonly node: string; readonly output: string; readonly magnitude: number };
}

/** Bytes that hold the output of the node `name`, or an input, from the kernel call `start` until before the call `end`. */
export interface BufferSpan {
  readonly name: string;
  readonly memory: 'linear' | 'gpu';
  readonly address: number;
  readonly size: number;
  readonly start: number;
  readonly end: number;
}

/** Bytes. */
export interface MemoryReport {
  /** Constants, packed ones included. */
  readonly weights: number;
  /** The most that runs held at once, besides weights; the sum of all that they requested. */
  readonly peak: number;
  readonly requested: number;
  /** How often a run used each byte: requested / peak. */
  readonly reuse: number;
  /** The unused share of the arena at the peak, without weights. */
  readonly fragmentation: number;
  /** Linear memory of the session. */
  readonly arena: number;
  /** GPU memory of the session; GPU memory of all tensors that runs left there. */
  readonly gpu: number;
  readonly tensors: number;
  /** Linear memory in the page, for Programs that are short enough to run there. */
  readonly page: number;
  /** With feeds: the buffers of a run on them. */
  readonly timeline?: readonly BufferSpan[];
}

/** What a session has counted since it was created (docs/watching.md). */
export interface Metrics {
  /** Runs that have ended; of these, runs that failed, and runs that the caller stopped. */
  readonly runs: number;
  readonly failed: number;
  readonly stopped: number;
  /** How often the session has recovered from a fault of the GPU. */
  readonly recovered: number;
  /** Runs that wait for their turn. */
  readonly waiting: number;
  /** Quantiles of the latest 1024 runs with results, the maximum of all; from the call to its results. */
  readonly milliseconds: { readonly p50: number; readonly p95: number; readonly max: number };
  /** Programs that were compiled; those from the cache do not count. */
  readonly compiled: number;
  /** Runs for which memory was planned, and runs that found a plan for their shapes. */
  readonly plans: { readonly made: number; readonly found: number };
  /** Memory of the session, linear and on the GPU. */
  readonly bytes: number;
}

/** running: a run is under way; recovering: after a fault of the GPU; failed: no device is left, or the worker has ended. */
export type SessionState = 'running' | 'ready' | 'recovering' | 'failed' | 'released';

/** What listeners of 'session' get. session: its `id`; name: `logId`, or the name of its file; start: by performance.now(). */
export type SessionEvent = { readonly session: number; readonly name: string } & (
  | { readonly type: 'created'; readonly start: number; readonly milliseconds: number; readonly timings: Timings }
  | { readonly type: 'state'; readonly state: SessionState }
  | { readonly type: 'step' | 'batch'; readonly batch: number } & StepResult // of sessions that train
  | {
    readonly type: 'run'; readonly outcome: 'succeeded' | 'failed' | 'stopped'; readonly start: number; readonly milliseconds: number;
    /** Where it ran, "" if it was refused; the times of its kernels, if they were measured. */
    readonly place: '' | 'page' | 'worker' | "page's GPU"; readonly kernels: readonly KernelTiming[];
    readonly error?: Error;
  }
);

/** One kernel call of a run. */
export interface KernelTiming {
  /** The label of its node, the name of its function. */
  readonly node: string;
  readonly kernel: string;
  readonly place: 'wasm' | 'webgpu';
  readonly milliseconds: number;
  /** Milliseconds after the run's first kernel on the GPU, if the GPU's clock can be read. */
  readonly start?: number;
  /** Bytes of the buffers that it reads and writes; 0 if unknown. */
  readonly bytes: number;
}

/** What the author of a model wrote about it: texts are "" and the version is null where the model has none. */
export interface ModelMetadata {
  readonly producerName: string;
  readonly producerVersion: string;
  readonly graphName: string;
  readonly domain: string;
  readonly description: string;
  readonly graphDescription: string;
  readonly version: number | null;
  readonly irVersion: number;
  /** Versions of the operator sets by domain; the domain of ONNX itself is "". */
  readonly opsetImports: Readonly<Record<string, number>>;
  readonly customMetadataMap: Readonly<Record<string, string>>;
}

/** The result of `tune`; times in milliseconds. */
export interface Tuned {
  /** For the option `choices` of later sessions of this model; empty if the default schedules are fastest. */
  readonly choices: Readonly<Record<string, Readonly<Record<string, number | string>>>>;
  /** A run with the default schedules, and with these choices. */
  readonly before: number;
  readonly after: number;
  /** Kernels that another schedule makes faster, the largest gain first, even if the run did not gain enough. */
  readonly kernels: readonly { readonly nodes: readonly string[]; readonly chosen: Readonly<Record<string, number | string>>; readonly before: number; readonly after: number }[];
  readonly took: number;
}

/** A value for an input: an array of tensors is a sequence, a `Map` or an object is a map, null is an absent optional. */
export type Feed =
  | Tensor | readonly Tensor[] | null
  | ReadonlyMap<string | number | bigint, number | bigint | string> | { readonly [key: string]: number | bigint | string };
/** Feeds by input name. */
export interface Feeds {
  readonly [name: string]: Feed;
}

declare module 'onnxruntime-common' {
  interface Env {
    /** Bytes of linear memory that all sessions together may hold (docs/api/memory.md). */
    memoryLimit?: number | undefined;
    /** The same of GPU memory. */
    gpuMemoryLimit?: number | undefined;
  }
  namespace InferenceSession {
    interface SessionOptions {
      /** Called while the engine starts, and while the model is fetched, compiled and initialised. */
      onProgress?: ((progress: Progress) => void) | undefined;
      /** LoRA adapters (.onnx_adapter, or safetensors of PEFT) by the names that runs give. */
      adapters?: Readonly<Record<string, AdapterSource | { readonly file: AdapterSource; readonly config: string | URL | object }>> | undefined;
      /** Caches the model's files: until the server has other ones (true), or until pages give another text. */
      cache?: boolean | string | undefined;
      // Written by scripts/contract.py from pyruntime/options.py.
      /** Names of passes that do not run. */
      disabledPasses?: readonly string[] | undefined;
      /** Names of the outputs that the session has; others are not computed, and their weights are not loaded. */
      outputs?: readonly string[] | undefined;
      /** Whether subnormal numbers, below 1.2e-38 in float32, stay exact (why not). */
      keepSubnormals?: boolean | undefined;
      /** The name of the output of logits. The session returns a sampled `token` instead of it (decoders). */
      sampleFrom?: string | undefined;
      /** With `sample_from`: a token for each of so many last positions, with a penalty for earlier tokens. */
      samplePositions?: number | undefined;
      /** With `sample_positions`: two more inputs say which tokens a position may have (decoders). */
      sampleMasks?: boolean | undefined;
      /** The schedules that `tune` measured for this model on this machine. */
      choices?: Tuned['choices'] | undefined;
      /** Bytes of code that one compilation may write. Beyond it `LimitExceeded` names the node or the pass. */
      codeSizeLimit?: number | undefined;
      /** Seconds that one compilation may take. Beyond it `LimitExceeded` names the node or the pass. */
      compileTimeLimit?: number | undefined;
      /**
       * Bytes of linear memory that the session may hold. A run that needs more is refused with `OutOfMemory` before
       * it allocates.
       */
      memoryLimit?: number | undefined;
      /**
       * Seconds without an answer of the GPU, after which the session recovers: the GPU compiles a shader, or runs
       * what was submitted.
       */
      gpuTimeout?: number | undefined;
      /**
       * Whether nodes, or the session, move to the next provider of the list if the GPU refuses a shader, has no
       * memory, does not answer or is gone (recovery). If not, the error of the GPU is thrown.
       */
      fallback?: boolean | undefined;
      /**
       * `latency`, `throughput` or `power`: sets threads, the choice of the GPU and runs in hidden pages, unless
       * other options do (presets).
       */
      preset?: 'latency' | 'throughput' | 'power' | undefined;
      // End of the generated part.
      /** Fetches the model's files in the page, instead of the worker; by default the page's `fetch` if a program has replaced it. */
      fetch?: ((url: string, init?: RequestInit) => Promise<Response>) | undefined;
      /** The name of the worker that runs the session: sessions in others run at the same time. 'shared': of all pages of the origin. */
      worker?: string | undefined;
      /** Stops the creation; `create` rejects at once with `Terminated`. */
      signal?: AbortSignal | undefined;
    }
    interface WebGpuExecutionProviderOption {
      /** Whether an adapter that computes on the CPU may run kernels, although the session names 'wasm', too. */
      allowSoftware?: boolean | undefined;
    }
    interface ExecutionProviderOptionMap {
      /** The faster one of the GPU and WebAssembly, which first runs decide. */
      auto: { readonly name: 'auto'; allowSoftware?: boolean | undefined };
    }
    interface RunOptions {
      /** Which of the session's adapters the run uses: names, or weights by name. */
      adapters?: string | readonly string[] | Readonly<Record<string, number>> | undefined;
      /** Stops the run; `run` rejects with `Terminated` when it has ended, some milliseconds later. */
      signal?: AbortSignal | undefined;
    }
  }
  interface TensorFactory {
    /** A tensor on the page's GPU, without a copy to the CPU (docs/api/gpu.md). */
    fromImage<T extends PictureType = 'float32'>(picture: Picture, options: PictureOptions<T> & { readonly location: 'gpu-buffer' }): Promise<TypedTensor<T>>;
    /** The same, of a texture of the page's device. width and height: of an external texture. */
    fromTexture<T extends PictureType = 'float32'>(texture: PictureTexture, options?: PictureOptions<T> & { readonly width?: number | undefined; readonly height?: number | undefined }): Promise<TypedTensor<T>>;
  }
  interface Tensor extends Drawn {}
  interface TypedTensor<T extends Tensor.Type> extends Drawn {}
  interface InferenceSessionFactory {
    /** A large file that a user has chosen is read in place. */
    create(model: URL | Blob | Response | ReadableStream<Uint8Array> | FileHandle, options?: InferenceSession.SessionOptions): Promise<InferenceSession>;
  }
  interface InferenceSession {
    run(feeds: Feeds, options?: InferenceSession.RunOptions): Promise<InferenceSession.ReturnType>;
    run(feeds: Feeds, fetches: InferenceSession.FetchesType, options?: InferenceSession.RunOptions): Promise<InferenceSession.ReturnType>;
    /** Ends `enableProfiling` or `startProfiling()`: prints a trace for Chrome's viewer or Perfetto and returns it; "" without one. */
    endProfiling(): string;
    /** Bytes of the weights, the most bytes that runs held at once besides them, and the sizes of the memories on the CPU and the GPU. */
    memory(options?: { feeds?: InferenceSession.FeedsType | undefined }): Promise<MemoryReport>;
    /** Counts and times of runs, Programs, plans and memory; also after the session's end. */
    metrics(): Promise<Metrics>;
    readonly state: SessionState;
    /** Its number in events. */
    readonly id: number;
    /** Operators, kernels and their placement. */
    explain(): Promise<Explanation>;
    /** Runs the model on the GPU and on WebAssembly, and names the first kernel whose results differ by more than `tolerance` (1e-3). */
    verify(feeds: Feeds, options?: { tolerance?: number | undefined; ranges?: false | undefined }): Promise<Verification>;
    /** Runs a half-float model in float32, and names the first node whose magnitudes pass 65504, the largest half float. */
    verify(feeds: Feeds, options: { ranges: true }): Promise<RangeVerification>;
    /** Measures other schedules of the kernels on this machine, about `seconds` (2) each. The session does not change. */
    tune(feeds: Feeds, options?: { seconds?: number | undefined }): Promise<Tuned>;
    /**
     * The kernels after the passes and their loops, as text; with `code` also their WebAssembly and WGSL. node: a name, an operator or a
     * label; feeds: for models that are compiled for the feeds of a run.
     */
    listing(feeds?: Feeds | null, options?: { node?: string | undefined; code?: boolean | undefined }): Promise<string>;
    /**
     * The compiled Program with its weights, as a file that opens without Python and without compiling (docs/api/exported-programs.md).
     * providers: ['wasm'] by default; with 'webgpu' it has shaders. assume: what they may use, such as 'f16' (docs/api/exported-programs.md).
     */
    export(options?: { readonly providers?: readonly ('webgpu' | 'wasm')[] | undefined; readonly assume?: readonly string[] | undefined }): Promise<Bytes>;
    /** Runs once on zeros of these sizes, by name of a dim or (all sizes) of an input: later runs of these and smaller sizes find memory and addresses. */
    prepare(options: { dims: Readonly<Record<string, number | readonly number[]>> }): Promise<void>;
    /** Frees memory that an earlier, larger run took. */
    trim(): Promise<void>;
    /**
     * Runs the model once, kernel by kernel, on one thread or on the GPU; the times in the order of the kernels. repeat: how often each
     * kernel on the GPU runs, one after the other; its time is the mean. Kernels that are short need it: clocks of GPUs are coarse in pages.
     */
    profile(feeds: Feeds, options?: { repeat?: number | undefined }): Promise<KernelTiming[]>;
    /** What the author of the model wrote about it; null for an exported program without it. */
    readonly metadata: ModelMetadata | null;
    readonly timings: Timings;
  }
}

/** The base class of errors; `message` is "node: detail (hint)" and a line with `help`. */
export class PyRuntimeError extends Error {
  constructor(detail: string, where?: { node?: string | undefined; hint?: string | undefined; cause?: unknown });
  readonly type: string;
  readonly detail: string;
  readonly node: string;
  readonly hint: string;
  /** The address of the documentation's page on this kind of error, among the package's files; "" if these are not known. */
  readonly help: string;
}
/** The file is not an ONNX model, or cannot be fetched. */
export class InvalidModel extends PyRuntimeError {}
/** An operator, an attribute or a type is not supported. */
export class UnsupportedOp extends PyRuntimeError {}
/** A gradient passes through a node that has none. `hint` names the tensors that need it. */
export class NotDifferentiable extends UnsupportedOp {}
/** Shapes in the model contradict each other. */
export class ShapeError extends PyRuntimeError {}
/** A feed has a wrong name, type, shape or value; the session stays usable. */
export class InvalidInput extends PyRuntimeError {}
/** Memory or a limit does not suffice; nothing was allocated. */
export class OutOfMemory extends PyRuntimeError {}
/** A bug of the engine. */
export class MemoryFault extends PyRuntimeError {}
/** A bug of the engine. */
export class InternalError extends PyRuntimeError {}
/** The GPU is gone and could not be replaced. */
export class DeviceLost extends PyRuntimeError {}
/** The browser has no WebGPU adapter. */
export class NoAdapter extends PyRuntimeError {}
/** The session was released, or its worker is gone. */
export class SessionFailed extends PyRuntimeError {}
/** Data was refused during a run. */
export class ExecutionError extends PyRuntimeError {}
/** Compiling takes longer or writes more code than the options allow. */
export class LimitExceeded extends PyRuntimeError {}
/** The browser's storage is too small; in bytes. */
export class QuotaExceeded extends PyRuntimeError {
  readonly needed: number;
  readonly usage: number;
  readonly quota: number;
}
/** A signal (`cause`: its reason; `name`: the reason's name, as with `fetch`) or `terminate` stopped the call. The session stays usable. */
export class Terminated extends PyRuntimeError {}

/** A model, or a file of a model, in the cache of this origin (option `cache`): its size in bytes, and the time when it was stored, in milliseconds since 1970. */
export interface KeptModel {
  readonly url: string;
  readonly version: string;
  readonly size: number;
  readonly kept: number;
}

/** The cached models, the oldest first. The browser may evict them unless it granted `navigator.storage.persist()`. */
export const models: {
  list(): Promise<KeptModel[]>;
  /** Resolves to whether the model was cached. */
  delete(url: string): Promise<boolean>;
  /** Bytes of this origin's storage, and whether it is safe from eviction. */
  room(): Promise<{ usage: number; quota: number; persisted: boolean }>;
};

/** An input or output as the model declares it: a type such as `tensor(float)`, and dims that are numbers, names or null. */
export interface DeclaredValue {
  readonly name: string;
  readonly type: string;
  readonly shape: readonly (number | string | null)[];
}

/** A description of a model and the memory that it needs (docs/api/python.md). */
export interface Inspection {
  readonly name: string;
  readonly producer: string;
  readonly ir: number;
  readonly opsets: Readonly<Record<string, number>>;
  readonly metadata: ModelMetadata;
  readonly inputs: readonly DeclaredValue[];
  readonly outputs: readonly DeclaredValue[];
  /** Nodes by operator. */
  readonly operators: Readonly<Record<string, number>>;
  /** A sentence for each unsupported operator or attribute; another reason why the compiler refuses the model, or "". */
  readonly unsupported: readonly string[];
  readonly refused: string;
  readonly weights: { readonly tensors: number; readonly bytes: number; readonly types: Readonly<Record<string, number>> };
  /** Bytes. linear: the peak without GPU memory; further: the part of it that is weights beyond the first 4 GiB; assumed: dims that count as 1. null if only feeds decide the Program. */
  readonly memory: null | {
    readonly weights: number; readonly loading: number; readonly run: number; readonly peak: number;
    readonly linear: number; readonly further: number; readonly assumed: readonly string[];
  };
  /** Kernel calls and nodes by place, distinct functions and their bytes. */
  readonly program: null | {
    readonly calls: Readonly<Record<string, number>>; readonly nodes: Readonly<Record<string, number>>;
    readonly functions: number; readonly code: number; readonly steps: number;
  };
  /** Bytes of the model's files, and the bytes of them that were fetched. */
  readonly size: number;
  readonly fetched: number;
  /** Whether there is enough memory; null if unknown. */
  readonly fits: { readonly here: boolean | null; readonly why: string };
}

/** Describes a model, its unsupported operators and the memory that it needs, from parts of its file. The options are those of a session. */
export function inspect(model: string | URL | Uint8Array | ArrayBufferLike | Blob | FileHandle, options?: import('onnxruntime-common').InferenceSession.SessionOptions): Promise<Inspection>;

/** What listeners get, by name of the event. */
export interface Events {
  memory: MemoryEvent;
  session: SessionEvent;
}

/** Sessions hold 70 or 90 % of what `env.memoryLimit` or `env.gpuMemoryLimit` allows; fired again once it has fallen below. In bytes. */
export interface MemoryEvent {
  readonly memory: 'linear' | 'gpu';
  readonly share: 0.7 | 0.9;
  readonly used: number;
  readonly limit: number;
}

/** Calls `listener` for each event of this name from now on. Returns a function that ends it. */
export function on<K extends keyof Events>(name: K, listener: (event: Events[K]) => void): () => void;
/** Ends what `on` began. */
export function off<K extends keyof Events>(name: K, listener: (event: Events[K]) => void): void;

export * from './pictures.js';
export * from './providers.js';
export * from './quantize.js';
export * from './training.js';

/** Starts the engine before the first session needs it. */
export function boot(onProgress?: (progress: Progress) => void, options?: { worker?: string | undefined }): Promise<void>;
/** Ends the workers and their sessions, but not "shared" for other pages. The next session starts a new one. */
export function shutdown(): void;
/** Memory and threads of the worker. */
export interface Stats {
  /** Bytes of Python's heap (0 if Python has not started); of the sessions' linear memories; of their GPU memory, with all tensors. */
  readonly heap: number;
  readonly arenas: number;
  readonly gpu: number;
  readonly sessions: number;
  /** Number and bytes of tensors that runs left on the page's GPU. */
  readonly tensors: number;
  readonly tensorBytes: number;
  /** Sessions and GPU tensors that the page dropped without releasing them, and whose memory was freed. */
  readonly droppedSessions: number;
  readonly droppedTensors: number;
  /** Number of threads besides the worker, and of Programs whose code they have loaded. */
  readonly threads: number;
  readonly teams: number;
  /** What the worker has fetched: bytes that came over the network (0 for cached files). A page's own list of resources leaves these out. */
  readonly downloads: readonly { readonly url: string; readonly bytes: number }[];
}

export function stats(): Promise<Stats>;
/** Runs Python in the engine's interpreter, to add operators, passes, rules and providers (docs/extending.md). */
export function python(code: string, args?: unknown, options?: { worker?: string | undefined }): Promise<unknown>;

