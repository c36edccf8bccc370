/**
 * Types of pyruntime/extras: a batcher, a writer of text, and measures for the browser's developer tools.
 * @module pyruntime/extras
 */

import type { InferenceSession, Tensor, on } from './index.js';

export interface BatcherOptions {
  /** Most rows of a run. Default: 8. */
  size?: number | undefined;
  /** Milliseconds that a request waits for others, at most. Default: 5. */
  wait?: number | undefined;
  /**
   * By input, the value that fills its other free dims up to the largest among the requests. Inputs that are not named share a run
   * only if these dims are equal.
   */
  pad?: Readonly<Record<string, number | bigint | string>> | undefined;
  /** Name of the batch dim. Default: that of the first input whose first dim has a name. */
  dim?: string | undefined;
  /** Outputs to return; each needs a row for each item. Default: all. */
  outputs?: readonly string[] | undefined;
}

/** Gathers requests into runs along the batch dim (docs/batching.md). */
export class Batcher {
  constructor(session: InferenceSession, options?: BatcherOptions);
  /**
   * The outputs of one request. `signal` drops it, and stops the run if no other request is part of it. adapters: as for
   * `InferenceSession.run`; requests with other adapters have other runs.
   */
  run(feeds: Readonly<Record<string, Tensor>>, options?: Pick<InferenceSession.RunOptions, 'signal' | 'adapters'>): Promise<Record<string, Tensor>>;
  /** Runs what waits, and refuses later requests. The session stays open. */
  close(): Promise<void>;
}

/** Such as a `Tokenizer` of @huggingface/tokenizers, or a tokenizer of transformers.js. */
export interface TextTokenizer {
  encode(text: string, options?: { add_special_tokens?: boolean | undefined }): { ids: readonly (number | bigint)[] } | readonly number[];
  decode(tokens: number[], options?: object): string;
}

/** A file: its address, or its bytes. */
export type TextFile = string | URL | Blob | FileSystemFileHandle | ArrayBuffer | Uint8Array;

/** The tokenizer in a GGUF file, of which only the beginning is read, or in a tokenizer.json: to make the feeds of a training, say. Loads the libraries that read it (95 kB). */
export function readTokenizer(file: TextFile): Promise<TextTokenizer>;

/** Files of a tokenizer and a chat template. */
export interface TextFiles {
  /** A GGUF file, of which only the beginning is read, or a tokenizer.json; or a tokenizer. */
  tokenizer: TextFile | TextTokenizer;
  /** A chat_template.jinja, a tokenizer_config.json, a GGUF file, or a Jinja text. Default: the template in the file of the tokenizer. */
  chatTemplate?: TextFile | undefined;
}

/** A message of a chat. Templates may know more of it, such as `tool_calls`. */
export interface Message {
  role: string;
  content?: unknown;
  [more: string]: unknown;
}

export interface ChatTemplateOptions {
  /** Functions that the model may call, as JSON schemas. */
  tools?: readonly unknown[] | undefined;
  /** End with the beginning of an answer. Default: true. */
  addGenerationPrompt?: boolean | undefined;
  /** false: return the text. Default: true. */
  tokenize?: boolean | undefined;
  /** Other variables that the template knows, such as `enable_thinking`. */
  variables?: Readonly<Record<string, unknown>> | undefined;
}

/** What a text follows: a text, tokens, or the messages of a chat. */
export type Prompt = string | readonly number[] | readonly Message[];

export interface TextGeneratorOptions {
  /** Turns text into tokens and back, such as a `Tokenizer` of @huggingface/tokenizers. Without one, prompts are tokens. */
  tokenizer?: TextTokenizer | undefined;
  /** The Jinja text that writes messages as one text. Default: the tokenizer's `chat_template`. */
  chatTemplate?: string | undefined;
  /** A smaller decoder with the same tokens. It proposes `draftTokens` tokens at a time; the session checks them in one run. */
  draft?: InferenceSession | undefined;
  /** Default: 4. The session needs the options of `TextGenerator.options({ draftTokens })`, the draft those of `options()`. */
  draftTokens?: number | undefined;
  /** In place of a draft: proposes what followed the last `lookup` tokens where they stood before (n-grams). Default: 0, none. */
  lookup?: number | undefined;
  /** Tensors for inputs besides those of a text, such as an encoder's states. */
  inputs?: Readonly<Record<string, Tensor>> | undefined;
  /** The model whose outputs some of these inputs are. The setting `inputs` of a text has its tensors. */
  encoder?: InferenceSession | undefined;
  /** Inputs that are caches, with the outputs that continue them, where names do not tell. */
  caches?: Readonly<Record<string, string>> | undefined;
  /** Adapters of the session's option `adapters` that its runs use. */
  adapters?: string | readonly string[] | Readonly<Record<string, number>> | undefined;
  /** Tokens that end a text. Default: the tokenizer's special tokens. */
  stopTokens?: number | readonly number[] | undefined;
}

/** A JSON schema (an object, true, or a text), a regular expression that the whole text matches, or a grammar in GBNF (docs/use/chat.md). */
export type TextFormat = { schema: object | boolean | string } | { regex: string } | { grammar: string };

export interface TextSettings {
  /** Default: 256; fewer where the model can read no more, as a GGUF file says. */
  maxTokens?: number | undefined;
  /** 0, the default, takes the likeliest token. */
  temperature?: number | undefined;
  /** Samples from the `topK` likeliest tokens. Default: 0, all. */
  topK?: number | undefined;
  /** Samples from the fewest tokens that have this part of the probability. Default: 1. */
  topP?: number | undefined;
  /** Divides positive scores, and multiplies others, of tokens that are there already. Default: 1. */
  repetitionPenalty?: number | undefined;
  /** The likeliest of so many texts that are written side by side (beam search): in `generate` alone. Default: 1. */
  numBeams?: number | undefined;
  /** The power of its length by which the log probability of a beam's text is divided. Default: 1. */
  lengthPenalty?: number | undefined;
  /** Ends once `numBeams` texts have ended. Default: false. */
  earlyStopping?: boolean | undefined;
  /** Of the random numbers: the same text as in Python. Default: another each time. */
  seed?: number | undefined;
  /** What the text is bound to; it is complete if its `reason` is 'format'. The session needs the options of `TextGenerator.options()`. */
  format?: TextFormat | undefined;
  /** Texts before which the result ends. */
  stop?: string | readonly string[] | undefined;
  /** Tensors for the encoder's inputs, or in place of some of the generator's `inputs`. Without it the last ones hold, and their caches are used again. */
  inputs?: Readonly<Record<string, Tensor>> | undefined;
  /** Stops the writing: the call rejects with `Terminated`. */
  signal?: AbortSignal | undefined;
}

/** What was written. */
export interface Generated {
  tokens: number[];
  /** Without the prompt; '' without a tokenizer. */
  text: string;
  /** Why it ended: `maxTokens` or what the model can read, one of `stopTokens`, one of `stop`, or it has its `format` (with another reason it may be unfinished). */
  reason: 'length' | 'token' | 'text' | 'format';
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
  static options(options?: { draftTokens?: number | undefined; logits?: string | undefined }): { sampleFrom: string; samplePositions: number; sampleMasks: boolean };
  constructor(session: InferenceSession, options?: TextGeneratorOptions);
  /** A generator whose tokenizer and chat template are in files, which are read while the session opens. It loads the libraries that read them (95 kB). */
  static create(session: InferenceSession | Promise<InferenceSession>, options: TextFiles & Omit<TextGeneratorOptions, keyof TextFiles>): Promise<TextGenerator>;
  /** What follows the prompt. */
  generate(prompt: Prompt, settings?: TextSettings): Promise<Generated>;
  /** What follows each prompt. The seed of each is one more than that of the one before. Texts of calls at the same time share runs of the model. */
  generate(prompts: readonly Prompt[], settings?: TextSettings): Promise<Generated[]>;
  /** The same, piece by piece; the iterator returns what was written. */
  stream(prompt: Prompt, settings?: TextSettings): AsyncGenerator<string, Generated>;
  /** The messages of a chat as tokens, by the model's chat template. */
  applyChatTemplate(messages: readonly Message[], options: ChatTemplateOptions & { tokenize: false }): Promise<string>;
  applyChatTemplate(messages: readonly Message[], options?: ChatTemplateOptions): Promise<number[]>;
  /**
   * Goes on with the newest text where it stopped, piece by piece: the iteration or a signal ended it, `maxTokens` were written, or
   * `restore` opened it. The iterator returns the whole text. maxTokens: further tokens; by default those that were left.
   */
  resume(settings?: Pick<TextSettings, 'maxTokens' | 'signal'>): AsyncGenerator<string, Generated>;
  /** The newest text, its settings and caches as a file. */
  save(): Promise<ArrayBuffer>;
  /** Continues with the text of such a file, of a page or of Python, and returns it so far. Rejects with InvalidInput for another model's file. */
  restore(file: Uint8Array | ArrayBuffer | Blob): Promise<Generated>;
  /** Forgets the tokens of earlier calls, and frees their caches, after the run of now. The sessions stay open. */
  reset(): Promise<void>;
}

/** Writes creations, runs, kernels and faults of all sessions as User Timing measures. Returns a function that ends it. */
export function exportMeasures(ort: { on: typeof on }): () => void;
