/**
 * Types of pyruntime/extras: a batcher, a writer of text, and measures for the browser's developer tools.
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

export interface TextGeneratorOptions {
  /** Turns text into tokens and back, such as a `Tokenizer` of @huggingface/tokenizers. Without one, prompts are tokens. */
  tokenizer?: { encode(text: string): { ids: readonly (number | bigint)[] } | readonly number[]; decode(tokens: number[], options?: object): string };
  /** A smaller decoder with the same tokens. It proposes `draftTokens` tokens at a time; the session checks them in one run. */
  draft?: InferenceSession;
  /** Default: 4. The session needs the options of `TextGenerator.options({ draftTokens })`, the draft those of `options()`. */
  draftTokens?: number;
  /** Tensors for inputs besides those of a text, such as an encoder's states. */
  inputs?: Readonly<Record<string, Tensor>>;
  /** Tokens that end a text. Default: the tokenizer's special tokens. */
  stopTokens?: readonly number[];
}

export interface TextSettings {
  /** Default: 256. */
  maxTokens?: number;
  /** 0, the default, takes the likeliest token. */
  temperature?: number;
  /** Samples from the `topK` likeliest tokens. Default: 0, all. */
  topK?: number;
  /** Samples from the fewest tokens that have this part of the probability. Default: 1. */
  topP?: number;
  /** Divides positive scores, and multiplies others, of tokens that are there already. Default: 1. */
  repetitionPenalty?: number;
  /** Of the random numbers: the same text as in Python. Default: another each time. */
  seed?: number;
  /** Texts before which the result ends. */
  stop?: string | readonly string[];
  /** Stops the writing: the call rejects with `Terminated`. */
  signal?: AbortSignal;
}

/** What was written. */
export interface Generated {
  tokens: number[];
  /** Without the prompt; '' without a tokenizer. */
  text: string;
  /** Why it ended: `maxTokens`, one of `stopTokens`, or one of `stop`. */
  reason: 'length' | 'token' | 'text';
  /** Tokens of the prompt that were in the cache. */
  reused: number;
  /** Milliseconds until the first token. */
  first: number;
  /** Milliseconds in all. */
  milliseconds: number;
  /** Tokens of the draft, and those that the session agreed with. */
  drafted: number;
  accepted: number;
}

/** A decoder that writes text (docs/use/chat.md). Keys and values stay cached between calls: only new tokens are computed. */
export class TextGenerator {
  /** Options for the session; for that of a draft, call it without draftTokens. `logits`: name of the output. */
  static options(options?: { draftTokens?: number; logits?: string }): { sampleFrom: string; samplePositions: number };
  constructor(session: InferenceSession, options?: TextGeneratorOptions);
  /** What follows the prompt: a text, or tokens. */
  generate(prompt: string | readonly number[], settings?: TextSettings): Promise<Generated>;
  /** What follows each prompt, computed together, without the draft. Different lengths need the inputs attention_mask and position_ids. */
  generate(prompts: readonly (string | readonly number[])[], settings?: TextSettings): Promise<Generated[]>;
  /** The same, piece by piece; the iterator returns what was written. */
  stream(prompt: string | readonly number[], settings?: TextSettings): AsyncGenerator<string, Generated>;
  /** Forgets the tokens of earlier calls, and frees their caches. The sessions stay open. */
  reset(): void;
}

/** Writes creations, runs, kernels and faults of all sessions as User Timing measures. Returns a function that ends it. */
export function exportMeasures(ort: { on: typeof on }): () => void;
