// The public types: onnxruntime-common's, and what this package adds. ort.d.ts adds the default export.

export * from 'onnxruntime-common';

/** `total` is 0 where it is not known. */
export interface Progress {
  readonly phase: 'boot' | 'download' | 'compile' | 'init';
  readonly loaded: number;
  readonly total: number;
}

/** Milliseconds. */
export interface Timings {
  readonly download: number;
  readonly compile: number;
  readonly init: number;
}

/** What became of a node of the model. */
export interface ExplainedNode {
  /** `Conv "conv1" (opset 11)`; `F "f" (opset 1) > Add "a" (opset 13)` inside a model-local function. */
  readonly node: string;
  readonly op: string;
  /** wasm, webgpu, host or control if it has steps in a run; init, plan, constant, view, fused or unused if not. */
  readonly place: string;
  /** Generated functions, and how often a run calls them. */
  readonly kernels: readonly string[];
  readonly calls: number;
  /** Nodes that are part of this one's kernels; the node that this one is part of. */
  readonly fused: readonly string[];
  readonly into: string;
  /** Work units, and bytes copied from the other provider's memory, of the last run; null before it if they depend on shapes. */
  readonly work: number | null;
  readonly crossing: number | null;
  /** Why it is not on the provider that was asked for first. */
  readonly why: string;
}

/** What the compiler made of a model. */
export interface Explanation {
  /** Operators by count, with the place most of them run at. */
  readonly operators: readonly { readonly op: string; readonly nodes: number; readonly place: string }[];
  /** Kernel calls by place: wasm, webgpu, host, control. */
  readonly placement: Readonly<Record<string, number>>;
  /** Kernel calls in all blocks, and distinct functions behind them. */
  readonly kernels: number;
  readonly functions: number;
  readonly steps: number;
  /** Bytes of generated code. */
  readonly code: number;
  /** Milliseconds of reading and compiling: read, trace, passes, emit, encode. */
  readonly phases: Readonly<Record<string, number>>;
  readonly nodes: readonly ExplainedNode[];
}

/** What `verify` found. */
export interface Verification {
  readonly ok: boolean;
  readonly tolerance: number;
  /** Results of kernels that were compared. */
  readonly compared: number;
  /** The first kernel whose results differ; at `index` they differ most, by `error` of the tensor's largest value. */
  readonly first: null | {
    readonly node: string; readonly kernel: string; readonly index: number; readonly expected: number; readonly actual: number;
    readonly error: number;
  };
}

/** Bytes. */
export interface MemoryReport {
  /** Constants, packed ones included. */
  readonly weights: number;
  /** Most that runs so far held at once, besides weights; what they asked for in all. */
  readonly peak: number;
  readonly requested: number;
  /** How many times each byte was used in a run: requested / peak. */
  readonly reuse: number;
  /** Share of the arena's reach, besides weights, that was not in use at the peak. */
  readonly fragmentation: number;
  /** Linear memory of the session. */
  readonly arena: number;
  /** Memory of the session on the GPU, and of all tensors that runs left there. */
  readonly gpu: number;
  readonly tensors: number;
  /** Linear memory in the page, of Programs so short that they run there. */
  readonly page: number;
}

/** One kernel call of a run. */
export interface KernelTiming {
  /** Label of its node, name of its function. */
  readonly node: string;
  readonly kernel: string;
  readonly place: 'wasm' | 'webgpu';
  readonly milliseconds: number;
  /** Milliseconds after the run's first kernel on the GPU, by its clock, if it has one that can be read. */
  readonly start?: number;
  /** Sizes of the buffers that it reads and writes; 0 where they are not known. */
  readonly bytes: number;
}

/** What was measured; times in milliseconds. */
export interface Tuned {
  /** For the option `choices` of later sessions of this model; empty where nothing is to be gained. */
  readonly choices: Readonly<Record<string, Readonly<Record<string, number>>>>;
  /** A run by default, and with these choices. */
  readonly before: number;
  readonly after: number;
  /** Kernels for which another schedule is better, the largest gain first, whether or not the run gained enough. */
  readonly kernels: readonly { readonly nodes: readonly string[]; readonly chosen: Readonly<Record<string, number>>; readonly before: number; readonly after: number }[];
  readonly took: number;
}

declare module 'onnxruntime-common' {
  namespace InferenceSession {
    interface SessionOptions {
      /** Told while the engine starts and the model is fetched, compiled and initialised. */
      onProgress?: (progress: Progress) => void;
      /**
       * Keeps the model's files for later visits. true: as long as the server has no other; a text: as long as pages
       * ask for this version, without asking the server.
       */
      cache?: boolean | string;
      // Written by scripts/contract.py from pyruntime/options.py.
      /** Names of passes that do not run. */
      disabledPasses?: readonly string[];
      /** The output of logits, in whose place the session returns a sampled `token` (decoders in docs/api.md). */
      sampleFrom?: string;
      /** The schedules that `tune` measured for this model on this machine. */
      choices?: Tuned['choices'];
      /** Bytes of code that one compilation may write. Beyond it `LimitExceeded` names the node or the pass. */
      codeSizeLimit?: number;
      /** Seconds that one compilation may take. Beyond it `LimitExceeded` names the node or the pass. */
      compileTimeLimit?: number;
      /**
       * Bytes of linear memory that the session may hold. A run that needs more is refused with `OutOfMemory` before
       * it allocates.
       */
      memoryLimit?: number;
      /**
       * `latency`, `throughput` or `power`: decides threads, the GPU and hidden pages where no other option does
       * (presets in docs/api.md).
       */
      preset?: 'latency' | 'throughput' | 'power';
      // End of the generated part.
      /** Stops the creation: `create` rejects at once with `Terminated`. */
      signal?: AbortSignal;
    }
    interface RunOptions {
      /** Stops the run: `run` rejects with `Terminated` once it has ended, some milliseconds later. */
      signal?: AbortSignal;
    }
  }
  interface InferenceSessionFactory {
    /** Of a file that a person has chosen: a large one is read where it lies. */
    create(model: URL | Blob | Response | ReadableStream<Uint8Array> | FileSystemFileHandle, options?: InferenceSession.SessionOptions): Promise<InferenceSession>;
  }
  interface InferenceSession {
    /** Ends `enableProfiling` or `startProfiling()`: prints a trace for Chrome's viewer or Perfetto, and gives it; "" without one. */
    endProfiling(): string;
    /** The memory plan: peak, arena, weights, in bytes. */
    memory(): Promise<MemoryReport>;
    /** What the compiler did: operators, kernels, placement. */
    explain(): Promise<Explanation>;
    /** Runs on the GPU and on WebAssembly; names the first kernel whose results differ by more than `tolerance` (1e-3). */
    verify(feeds: InferenceSession.FeedsType, options?: { tolerance?: number }): Promise<Verification>;
    /** Measures other schedules of the kernels on this machine, some `seconds` (2) each; the session stays as it is. */
    tune(feeds: InferenceSession.FeedsType, options?: { seconds?: number }): Promise<Tuned>;
    /** Gives back memory that an earlier, larger run took: the next run starts from constants alone. */
    trim(): Promise<void>;
    /** Runs once, each kernel on its own, on one thread or on the GPU; their times in the order they ran. */
    profile(feeds: InferenceSession.OnnxValueMapType): Promise<KernelTiming[]>;
    readonly timings: Timings;
  }
}

/** Root of the errors; `message` reads "node: detail (hint)". */
export class PyRuntimeError extends Error {
  constructor(detail: string, where?: { node?: string; hint?: string; cause?: unknown });
  readonly type: string;
  readonly detail: string;
  readonly node: string;
  readonly hint: string;
}
export class InvalidModel extends PyRuntimeError {}
export class UnsupportedOp extends PyRuntimeError {}
export class ShapeError extends PyRuntimeError {}
export class InvalidInput extends PyRuntimeError {}
export class OutOfMemory extends PyRuntimeError {}
export class MemoryFault extends PyRuntimeError {}
/** The engine failed where it should have worked or refused: always a bug of ours. */
export class InternalError extends PyRuntimeError {}
export class DeviceLost extends PyRuntimeError {}
export class NoAdapter extends PyRuntimeError {}
export class SessionFailed extends PyRuntimeError {}
export class ExecutionError extends PyRuntimeError {}
export class LimitExceeded extends PyRuntimeError {}
/** The browser has no room for what was to be kept: bytes. */
export class QuotaExceeded extends PyRuntimeError {
  readonly needed: number;
  readonly usage: number;
  readonly quota: number;
}
/** Stopped by a signal (`cause`: its reason; `name`: the reason's, as `fetch` has it) or by `terminate`. The session stays usable. */
export class Terminated extends PyRuntimeError {}

/** A model, or a file of one, that pages on this origin keep (`cache`): its size in bytes, and when it was kept, in milliseconds since 1970. */
export interface KeptModel {
  readonly url: string;
  readonly version: string;
  readonly size: number;
  readonly kept: number;
}

/** Models that are kept, the oldest first. The browser may evict them, unless `navigator.storage.persist()` was granted. */
export const models: {
  list(): Promise<KeptModel[]>;
  /** Whether there was one. */
  delete(url: string): Promise<boolean>;
  /** Bytes of this origin's storage, and whether the browser may evict it. */
  room(): Promise<{ usage: number; quota: number; persisted: boolean }>;
};

/** An input or output as a model declares it: `tensor(float)`, and dims that are numbers, names or null. */
export interface DeclaredValue {
  readonly name: string;
  readonly type: string;
  readonly shape: readonly (number | string | null)[];
}

/** What a model is and what it will take (docs/api.md, "Know before you load"). */
export interface Inspection {
  readonly name: string;
  readonly producer: string;
  readonly ir: number;
  readonly opsets: Readonly<Record<string, number>>;
  readonly inputs: readonly DeclaredValue[];
  readonly outputs: readonly DeclaredValue[];
  /** Nodes by operator. */
  readonly operators: Readonly<Record<string, number>>;
  /** A sentence for each operator or attribute that is not supported; what else the compiler refuses, or "". */
  readonly unsupported: readonly string[];
  readonly refused: string;
  readonly weights: { readonly tensors: number; readonly bytes: number; readonly types: Readonly<Record<string, number>> };
  /** Bytes; linear: without what is on the GPU; further: of it, weights beyond the first 4 GiB; assumed: dims that count as 1. null for a model that is compiled for feeds. */
  readonly memory: null | {
    readonly weights: number; readonly loading: number; readonly run: number; readonly peak: number;
    readonly linear: number; readonly further: number; readonly assumed: readonly string[];
  };
  /** Kernel calls and nodes by place, distinct functions and their bytes. */
  readonly program: null | {
    readonly calls: Readonly<Record<string, number>>; readonly nodes: Readonly<Record<string, number>>;
    readonly functions: number; readonly code: number; readonly steps: number;
  };
  /** Bytes of the model's files, and of what was fetched of them. */
  readonly size: number;
  readonly fetched: number;
  /** Whether the memory is there, null if it is not known. */
  readonly fits: { readonly here: boolean | null; readonly why: string };
}

/** Tells what a model is, what of it is not supported and the memory it takes, by parts of its file; options as of a session. */
export function inspect(model: string | URL | Uint8Array | ArrayBufferLike | Blob | FileSystemFileHandle, options?: import('onnxruntime-common').InferenceSession.SessionOptions): Promise<Inspection>;

/** Starts the engine ahead of the first session. */
export function boot(onProgress?: (progress: Progress) => void): Promise<void>;
/** Ends the worker with every session in it; the next session starts a new one. */
export function shutdown(): void;
/** What the worker holds. */
export interface Stats {
  /** Bytes of Python's heap, 0 if it was not needed; of the sessions' linear memory. */
  readonly heap: number;
  readonly arenas: number;
  readonly sessions: number;
  /** Tensors that runs left on the page's GPU. */
  readonly tensors: number;
  /** Threads besides the worker, and programs that they have code of. */
  readonly threads: number;
  readonly teams: number;
}

export function stats(): Promise<Stats>;
/** Runs Python in the engine's interpreter, to add operators, passes, rules and providers (docs/extending.md). */
export function python(code: string, args?: unknown): Promise<unknown>;

