/**
 * Types of pyruntime/module: models as WebAssembly modules, for edge workers (docs/use/edge.md).
 * @module pyruntime/module
 */

import type { InferenceSession as Base, Tensor } from 'onnxruntime-common';

export { Tensor } from 'onnxruntime-common';
export {
  ExecutionError, InvalidInput, InvalidModel, OutOfMemory, PyRuntimeError, SessionFailed, ShapeError, UnsupportedOp,
} from './index.js';

/** A model of a module that `pyruntime export --module` wrote. */
export class InferenceSession {
  private constructor();
  /** Instantiates an imported module. Errors: InvalidInput, InvalidModel. */
  static create(module: WebAssembly.Module): Promise<InferenceSession>;
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  readonly inputMetadata: readonly Base.ValueMetadata[];
  readonly outputMetadata: readonly Base.ValueMetadata[];
  /** Errors: InvalidInput for feeds that do not fit. fetches: the outputs to compute, all by default. */
  run(feeds: Readonly<Record<string, Tensor | readonly Tensor[] | null>>, fetches?: readonly string[] | Readonly<Record<string, null>>): Promise<Record<string, Tensor>>;
  /** Frees the memory. */
  release(): Promise<void>;
}
