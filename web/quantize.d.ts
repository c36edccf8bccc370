/**
 * Types of `quantize` and `quantizeStatic`: models of fewer bits.
 * @module pyruntime
 */

import type { InferenceSession, Tensor } from 'onnxruntime-common';
import type { Bytes, FileHandle } from './index.js';

type Feeds = Readonly<Record<string, Tensor>>;
type Samples = Iterable<Feeds> | AsyncIterable<Feeds>;
type Model = string | URL | Uint8Array | ArrayBufferLike | Blob | Response | FileHandle;

/** The options besides those of a session, which apply to the sessions that measure errors. */
export interface QuantizeOptions extends Omit<InferenceSession.SessionOptions, 'adapters'> {
  /** Of a weight: 4 (default), 8 or 16 (half floats). Layers that cannot have so few get more. */
  bits?: 4 | 8 | 16 | undefined;
  /** Inputs by name, on which errors are measured. */
  samples?: Samples | undefined;
  /** Bound of the error of each output on the samples, relative to its size: layers get more bits until it holds. */
  maxError?: number | undefined;
  /** Patterns of names of layers that stay as they are, such as 'lm_head' or 'head.*'. */
  keep?: readonly string[] | undefined;
  /** Weights with fewer elements stay as they are. Default: 16384. */
  smallest?: number | undefined;
  /** Codes that share a scale, a power of 2 from 16 on. Default: 32. */
  blockSize?: number | undefined;
  /** Of MatMulNBits; 4 lets runtimes compute with 8-bit activations. Default: 0. */
  accuracyLevel?: number | undefined;
}

/** The options besides those of a session, which apply to the sessions that run the samples. */
export interface QuantizeStaticOptions extends Omit<InferenceSession.SessionOptions, 'adapters'> {
  /** Ranges of activations: of all numbers (default), without the outermost, or those that tell most of the histogram. */
  calibration?: 'range' | 'percentile' | 'entropy' | undefined;
  /** Of the numbers that `percentile` keeps, above 50. Default: 99.99. */
  percentile?: number | undefined;
  /** Patterns of names of layers that stay floats. */
  keep?: readonly string[] | undefined;
  /** Weights stay floats before QuantizeLinear, for training sessions with `scales: 'lsq'`. Default: false. */
  trainable?: boolean | undefined;
}

/** What became of a layer. */
export interface QuantizedLayer {
  readonly name: string;
  readonly op: string;
  readonly shape: readonly number[];
  /** Of its weight. */
  readonly bits: number;
  /** Bytes of its weight. */
  readonly before: number;
  readonly after: number;
  /** Of its result on the samples, relative to its size; null without samples, and for layers in branches and loops. */
  readonly error: number | null;
}

export interface Quantized {
  /** An ONNX file. */
  readonly model: Bytes;
  /** errors: of each output of floats on the samples, relative to its size. */
  readonly report: { readonly layers: readonly QuantizedLayer[]; readonly errors: Readonly<Record<string, number>> };
}

/** Makes a smaller model (docs/use/convert.md#make-it-smaller): weights of MatMul, Gemm, Gather, Conv and ConvTranspose have fewer bits. */
export function quantize(model: Model, options?: QuantizeOptions): Promise<Quantized>;

/** Makes a model of 8-bit weights and activations (docs/use/smaller.md#8-bit-activations), whose ranges follow from samples. */
export function quantizeStatic(model: Model, samples: Samples, options?: QuantizeStaticOptions): Promise<Quantized>;
