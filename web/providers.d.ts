/** Providers in JavaScript, which a page adds (docs/extending.md#providers-in-javascript). */

/**
 * Imports a module in the engine's worker and registers its default export, a `Provider`, for later sessions, which name it in
 * `executionProviders`. Resolves to its name.
 */
export function registerProvider(address: string | URL, options?: { worker?: string | undefined }): Promise<string>;

/** A number, the name of a dim that runs decide, or an operation: ['*', 'N', 2]. */
export type KernelDim = number | string | readonly [string, ...KernelDim[]];
/**
 * An element of a tensor as nested arrays. Leaves: ['const', value, type]; ['dim', dim]; ['index', axis of the output];
 * ['arg', 0], the result that an epilogue continues; ['at', id of the tensor, coordinate, …]. Others: [operation, operand, …], for
 * example ['tanh', x]; ['cast', type, x]. Numbers that JSON lacks are texts: 'Infinity'.
 */
export type KernelExpression = readonly [operation: string, ...operands: unknown[]];

/** A tensor between kernels. id: the same in all kernels of a session; type: 'float32'. */
export interface KernelTensor { readonly id: number; readonly type: string; readonly dims: readonly KernelDim[] }

/** An operand inside another tensor: its element (i, j, …) is at offset + i · strides[0] + j · strides[1] + …, in elements. */
export interface KernelView { readonly tensor: KernelTensor; readonly offset: KernelDim; readonly strides: readonly KernelDim[] }

/** A tensor computation (docs/architecture.md#glossary). `node`: the label of its ONNX node. */
export type Kernel = { readonly node: string; readonly inputs: readonly KernelTensor[]; readonly outputs: readonly KernelTensor[] } & (
  /** Each element of the output is that of the expression; null if it has over 5,000 terms. */
  | { readonly kind: 'map'; readonly expression: KernelExpression | null }
  /** Axes of the reduction, of these extents, follow those of the output in the expression. */
  | {
    readonly kind: 'reduce'; readonly operation: string; readonly extents: readonly KernelDim[];
    readonly expression: KernelExpression | null; readonly epilogue: KernelExpression | null;
  }
  /** A procedure with loops, by its name. */
  | { readonly kind: 'loops'; readonly name: string }
  /** The same elements in another shape. */
  | { readonly kind: 'alias' }
  /**
   * A routine (matmul, conv, conv_transpose, matmul_nbits). operands: ids, null where one is absent; strided: views of operands by
   * number; order: the axis of the routine's result for each axis of the output; epilogue: continues ['arg', 0]; packed: numbers of
   * operands in the layout of `packs`.
   */
  | {
    readonly kind: 'call'; readonly routine: string; readonly operands: readonly (number | null)[];
    readonly attributes: Readonly<Record<string, unknown>>; readonly strided: Readonly<Record<string, KernelView>>;
    readonly order: readonly number[] | null; readonly epilogue: KernelExpression | null; readonly packed: readonly number[];
  }
);
export type KernelCall = Extract<Kernel, { kind: 'call' }>;

/** Kernels in order, which run as one; one kernel unless the provider `takesParts`. inputs: what they read from outside. */
export interface ProviderPart {
  readonly kernels: readonly Kernel[];
  readonly inputs: readonly KernelTensor[];
  readonly outputs: readonly KernelTensor[];
  readonly node: string;
  /** For each input, whether its elements never change. */
  readonly constant: readonly boolean[];
}

/**
 * A view of linear memory, of C order. bfloat16 and float8 are unsigned integers of their bits, bools and integers of 2 and 4 bits have a
 * byte each. float16 is a Float16Array, or a Uint16Array of the bits where there is none.
 */
export type ProviderArray = (Float32Array | Float64Array | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array
  | BigInt64Array | BigUint64Array) & { readonly dims: readonly number[] };

/** Computes outputs from inputs: writes every element of the outputs, whose elements are undefined before, and never an input. */
export type ProviderJob = () => unknown;
/** Binds arrays, once for the same addresses and sizes; later runs only call the job. symbols: values of dims by name. */
export type ProviderBind = (
  inputs: readonly ProviderArray[], outputs: readonly ProviderArray[], symbols: Readonly<Record<string, number>>,
) => ProviderJob | PromiseLike<ProviderJob>;

/** An operand in another layout: element [index, …] is that of the expression, which reads the operand by ['at', its id, …]. */
export interface PackedOperand { readonly type: string; readonly dims: readonly number[]; readonly expression: KernelExpression }

/** What runs kernels of one session. Questions of compilation need their answers at once. */
export interface SessionProvider {
  /** '' if it runs the kernel, else the reason why not, which `explain` shows. */
  supports(kernel: Kernel): string;
  /**
   * Whether it runs a whole ONNX node ('LayerNormalization', 'com.microsoft.FastGelu'), of which it gets one call with the routine
   * 'onnx:' + node. inputs: null where one is absent. Default: false.
   */
  supportsNode?(node: string, inputs: readonly (KernelTensor | null)[], attributes: Readonly<Record<string, unknown>>): boolean;
  /** Time of a part in operations of WebAssembly; if it has fewer, it goes to the next provider. Default: null, unknown. */
  cost?(part: ProviderPart): number | null;
  /** Whether it reads an operand of a call that it takes through this view, without a copy. Default: false. */
  reads?(call: KernelCall, operand: number, view: KernelView): boolean;
  /** Whether it applies this epilogue to a call that it takes, and writes `out`, whose axis n is axis order[n] of its own. Default: false. */
  fuses?(call: KernelCall, out: KernelTensor, order: readonly number[], epilogue: KernelExpression | null): boolean;
  /** Another layout for a constant operand of a call that it takes, which the engine makes once. Default: null, as it is. */
  packs?(call: KernelCall, operand: number): PackedOperand | null;
  /** Compiles a part, once for each Program. */
  compile(part: ProviderPart): ProviderBind;
  /** Frame each run of a Program with parts of the provider. A promise is awaited. error: that of the run, or null. */
  runStart?(): unknown;
  runEnd?(error: unknown): unknown;
  /** The session is released. */
  close?(): unknown;
}

/** The default export of a module for `registerProvider`. */
export interface Provider extends SessionProvider {
  readonly name: string;
  /** Whether `compile` gets consecutive kernels as one part. Default: false. */
  readonly takesParts?: boolean | undefined;
  /** Names and defaults of its options. A session with others, or with values of other types, is refused. */
  readonly options?: Readonly<Record<string, unknown>> | undefined;
  /**
   * Opens the provider of one session; without it, all sessions have this object. A RangeError refuses a value of an option; after
   * any other error the session goes on without the provider, with a warning. threads: as many as it may use.
   */
  open?(options: Readonly<Record<string, never>>, threads: number): SessionProvider | PromiseLike<SessionProvider>;
}
