/**
 * Types of pyruntime/extras: a batcher, and measures for the browser's developer tools.
 * @module pyruntime/extras
 */

import type { InferenceSession, Tensor, on } from './index.js';

export interface BatcherOptions {
  /** Most rows of a run. Default: 8. */
  size?: number;
  /** Milliseconds that a request waits for others, at most. Default: 5. */
  wait?: number;
  /**
   * By input, the value that fills its other free dims up to the largest among the requests. Inputs that are not named share a run
   * only if these dims are equal.
   */
  pad?: Readonly<Record<string, number | bigint | string>>;
  /** Name of the batch dim. Default: that of the first input whose first dim has a name. */
  dim?: string;
  /** Outputs to return; each needs a row for each item. Default: all. */
  outputs?: readonly string[];
}

/** Gathers requests into runs along the batch dim (docs/batching.md). */
export class Batcher {
  constructor(session: InferenceSession, options?: BatcherOptions);
  /** The outputs of one request. `signal` drops it, and stops the run if no other request is part of it. */
  run(feeds: Readonly<Record<string, Tensor>>, options?: { signal?: AbortSignal }): Promise<Record<string, Tensor>>;
  /** Runs what waits, and refuses later requests. The session stays open. */
  close(): Promise<void>;
}

/** Writes creations, runs, kernels and faults of all sessions as User Timing measures. Returns a function that ends it. */
export function exportMeasures(ort: { on: typeof on }): () => void;
