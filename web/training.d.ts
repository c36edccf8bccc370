// Types of sessions that train.

import type { Bytes, Explanation, Feeds, InferenceSession, MemoryReport, Metrics, Tensor, Timings } from './index.js';

/** loss: of the batch, before the step; norm: of all gradients; step: number of steps so far; applied: whether weights were changed. */
export interface StepResult { readonly loss: number; readonly norm: number; readonly rate: number; readonly step: number; readonly applied: boolean }
/** weights: of the classes; soft: labels are probabilities; more in docs/training.md. */
interface LossOfClasses { readonly ignoreIndex?: number | undefined; readonly weights?: readonly number[] | undefined; readonly axis?: number | undefined }
/** A number, or a list of numbers along one axis. */
type Operand = TracedTensor | number | readonly number[];
type Reduction = (axes?: number | readonly number[] | null, keepdims?: boolean) => TracedTensor;
/** A value of a function that is called once, before there are data. docs/training.md has the meanings of its methods. */
export type TracedTensor = { readonly [Name in 'abs' | 'neg' | 'exp' | 'log' | 'sqrt' | 'square' | 'sign' | 'floor' | 'round' | 'sin' | 'cos' | 'tanh' | 'erf' | 'sigmoid' | 'relu' | 'softplus' | 'logicalNot' | 'detach']: () => TracedTensor }
  & { readonly [Name in 'add' | 'sub' | 'mul' | 'div' | 'pow' | 'minimum' | 'maximum' | 'eq' | 'ne' | 'lt' | 'le' | 'gt' | 'ge' | 'logicalAnd' | 'logicalOr']: (other: Operand) => TracedTensor }
  & { readonly sum: Reduction; readonly mean: Reduction; readonly max: Reduction; readonly min: Reduction;
    where(a: Operand, b: Operand): TracedTensor; matmul(other: TracedTensor): TracedTensor; pick(labels: TracedTensor): TracedTensor; oneHot(classes: number): TracedTensor;
    softmax(axis?: number): TracedTensor; logSoftmax(axis?: number): TracedTensor; reshape(shape: readonly number[]): TracedTensor; transpose(axes?: readonly number[]): TracedTensor;
    unsqueeze(axes?: number | readonly number[]): TracedTensor; squeeze(axes: number | readonly number[]): TracedTensor;
    /** Of weights and gradients in the function of an optimiser. */ readonly rank: number };
/** outputs: outputs and inputs of the model by name; labels: targets, which become feeds. Returns a single number. */
export type LossFunction = (outputs: Readonly<Record<string, TracedTensor>>, labels: Readonly<Record<string, TracedTensor>>) => TracedTensor;
/** Returns the new weight. state: values by name, which begin with 0 and which the function sets; step: `rate`, `number` (from 1), and other settings. */
export type UpdateFunction = (weight: TracedTensor, gradient: TracedTensor, state: Record<string, TracedTensor>,
  step: Readonly<Record<string, TracedTensor>> & { correction(beta: number): TracedTensor }) => TracedTensor;
export type Loss = string | LossFunction | ({ readonly target?: string | undefined; readonly scale?: number | undefined; readonly reduction?: 'mean' | 'sum' | 'batchmean' | undefined } & (
  | { readonly crossEntropy: string; readonly smoothing?: number | undefined; readonly soft?: boolean | undefined } & LossOfClasses | { readonly nll: string } & LossOfClasses
  | { readonly function: LossFunction } | { readonly mse: string } | { readonly l1: string } | { readonly huber: string; readonly delta?: number | undefined }
  | { readonly bce: string; readonly logits?: boolean | undefined; readonly posWeight?: number | readonly number[] | undefined } | { readonly output: string }
  | { readonly kl: string; readonly logTarget?: boolean | undefined } | { readonly cosine: string | readonly string[]; readonly margin?: number | undefined }
  | { readonly triplet: readonly string[]; readonly margin?: number | undefined; readonly swap?: boolean | undefined }
  | { readonly ctc: string; readonly blank?: number | undefined; readonly logits?: boolean | undefined; readonly batchFirst?: boolean | undefined; readonly zeroInfinity?: boolean | undefined; readonly inputLengths?: string | undefined; readonly targetLengths?: string | undefined }
  | { readonly distill: string; readonly teacher: Uint8Array | ArrayBuffer; readonly temperature?: number | undefined; readonly alpha?: number | undefined; readonly axis?: number | undefined; readonly inputs?: Readonly<Record<string, string>> | undefined; readonly output?: string | undefined }
  | { readonly onnx: Uint8Array | ArrayBuffer; readonly inputs?: Readonly<Record<string, string>> | undefined; readonly output?: string | undefined }));
export interface TrainingOptions extends Omit<InferenceSession.SessionOptions, 'adapters'> {
  // Written by scripts/contract.py from pyruntime/training/graph/recipe.py.
  /** What a step reduces: see losses. */
  loss: Loss | readonly Loss[];
  /** A name, `{name: settings}`, or a function. */
  optimizer?: string | UpdateFunction | Readonly<Record<string, Readonly<Record<string, number | boolean | UpdateFunction>>>> | undefined;
  /** Of the learning rate: see schedules. */
  schedule?: string | Readonly<Record<string, Readonly<Record<string, number | boolean>>>> | undefined;
  /** A rate or a decay of their own for some weights: `[{"match": "head.*", "rate": 0.01, "decay": 0}]`. A weight belongs to the first group that names it; the schedule changes all rates in proportion. */
  groups?: readonly { readonly match: string | readonly string[]; readonly rate?: number | undefined; readonly decay?: number | undefined }[] | undefined;
  /** `"vectors"`: biases, scales of norms and other weights with at most one axis longer than 1 do not decay; or names or patterns. */
  noDecay?: string | readonly string[] | undefined;
  /** Names or patterns (`"head.*"`) of the weights to train. Without it the model's parameters. */
  trainable?: string | readonly string[] | undefined;
  /** Names or patterns of weights that stay as they are. */
  frozen?: string | readonly string[] | undefined;
  /** Trains adapters beside the weights, and of the weights only those that `trainable` names. */
  lora?: { readonly rank?: number | undefined; readonly alpha?: number | undefined; readonly dora?: boolean | undefined; readonly targets?: string | readonly string[] | undefined } | undefined;
  /** Gradients of several batches make one step: `accumulate(feeds)`, then `apply()`. */
  accumulate?: boolean | undefined;
  /** `"inference"`: Dropout drops nothing, BatchNormalization uses its running statistics. */
  mode?: 'train' | 'inference' | undefined;
  /** Limit of the norm of all gradients, or `{"value": …}` for each number. */
  clip?: number | { readonly norm?: number | undefined; readonly value?: number | undefined } | undefined;
  /** The factor μ of a term μ/2·‖w − w₀‖² that holds weights near those that were loaded last, or of the model. */
  proximal?: number | undefined;
  /** Keeps averages of the weights: after each step ema · average + (1 − ema) · weight, such as 0.999: see Averages. */
  ema?: number | undefined;
  /** Names of outputs of the model that a step also computes, as training does, in `session.stepOutputs`. */
  stepOutputs?: string | readonly string[] | undefined;
  /** Of masks and random numbers; runs with the same seed and data repeat each other. */
  seed?: number | undefined;
  /** `"lsq"`: also trains the scales of QuantizeLinear: see Quantisation. */
  scales?: 'fixed' | 'lsq' | undefined;
  /** `"keep"`: zeros of weights with two axes and more stay zeros, as pruned blocks are. */
  zeros?: 'train' | 'keep' | undefined;
  /** A step whose loss or gradients are not finite changes nothing, and a warning names the step; or `"go on"`. */
  onNan?: 'skip' | 'go on' | undefined;
  /** Bytes that a step may take with weights and moments: activations that would take more are computed again, see Memory. */
  memory?: number | undefined;
  /** `"dynamic"`, or a number: what the loss is multiplied by before its gradients. Without it: dynamic for models that compute in float16, else 1. */
  lossScale?: 'dynamic' | number | undefined;
  // End of the generated part.
}
export interface StopOptions { signal?: AbortSignal | undefined }
/** average: with the averages of the weights, which the option `ema` keeps. */
export interface AverageOptions { average?: boolean | undefined }
/** rate: of learning, instead of the schedule's. */
export interface StepOptions extends StopOptions { rate?: number | undefined }
/** Tensors by name, whose rows make batches; a list or other iterable of batches; or a function of the epoch's number that returns one of these. */
export type FitData = Feeds | Iterable<Feeds> | AsyncIterable<Feeds> | ((epoch: number) => FitData | Promise<FitData>);
/** loss: mean of the batches, each before its step; validation: mean loss of the held-out data after the epoch; steps: how many changed weights. */
export interface FitEpoch { readonly epoch: number; readonly loss: number; readonly validation: number | null; readonly rate: number; readonly steps: number; readonly isBest: boolean }
/** callbacks: after each step and each epoch; `false` ends the work. patience: epochs without a lower loss, after which it ends. keepBest: the weights are those of the best epoch at the end. */
export interface FitOptions extends StopOptions {
  epochs?: number | undefined;
  batchSize?: number | undefined;
  validation?: FitData | null | undefined;
  callbacks?: readonly ((result: StepResult | FitEpoch) => unknown)[] | undefined;
  shuffle?: boolean | undefined;
  seed?: number | null | undefined;
  patience?: number | null | undefined;
  keepBest?: boolean | undefined;
}
/** Trains a model in the worker. `apply` makes a step with the gradients that `accumulate` has added; `state` is a safetensors file. */
export interface TrainingSession {
  step(feeds: Feeds, options?: StepOptions): Promise<StepResult>;
  /** A step with each batch. Where steps are short, the worker makes many for one message. An error names the batch; the steps before it are made. */
  steps(batches: readonly Feeds[], options?: StepOptions): Promise<StepResult[]>;
  accumulate(feeds: Feeds, options?: StopOptions): Promise<StepResult>;
  /** The gradients of the loss of a batch by name of the weight, without a step. The session needs the option `accumulate`. */
  gradients(feeds: Feeds, options?: StopOptions): Promise<Record<string, Tensor>>;
  apply(options?: StepOptions & { sum?: boolean | undefined }): Promise<StepResult>;
  evaluate(feeds: Feeds, outputs?: string[], options?: StopOptions & AverageOptions): Promise<{ readonly loss: number } & Record<string, any>>;
  /** Steps over a set of data, several times; best: number of the best epoch. */
  fit(dataset: FitData, options?: FitOptions): Promise<{ readonly epochs: readonly FitEpoch[]; readonly best: number }>;
  /** Tells the schedule `plateau` a value, such as the loss of held-out data; returns the rate of the next step. */
  observe(value: number): Promise<number>;
  parameters(): { name: string; shape: number[]; dtype: string; reason: string }[];
  /** What a step is fed: inputs of the model, and targets. shape: numbers, names of dims, and null for dims without a name; null if the rank is not known. */
  inputs(): { name: string; shape: (number | string | null)[] | null; dtype: string | null }[];
  weights(options?: AverageOptions): Promise<Record<string, Tensor>>;
  /** Steps no longer change these weights (names or patterns), nor what the optimiser keeps of them. Returns the names of all that are frozen now. */
  freeze(names: string | readonly string[]): Promise<string[]>;
  /** Steps change these weights again, all without names. */
  unfreeze(names?: string | readonly string[]): Promise<string[]>;
  setWeights(tensors: Readonly<Record<string, Tensor>>): Promise<void>;
  /** The trained weights as one float32 tensor, in the order of `parameters()`; with `trainableOnly` false followed by running statistics. */
  getContiguousParameters(trainableOnly?: boolean): Promise<Tensor>;
  /** Replaces weights by such a vector, for example an average of several sessions'; the proximal term then holds weights near it. */
  loadParametersBuffer(buffer: Float32Array | Uint8Array | ArrayBuffer | Tensor, trainableOnly?: boolean): Promise<void>;
  getParametersSize(trainableOnly?: boolean): Promise<number>;
  state(): Promise<Bytes>;
  load(checkpoint: Uint8Array | ArrayBuffer): Promise<void>;
  /** The adapters alone: a safetensors file with PEFT's names. */
  adapter(): Promise<Bytes>;
  export(options?: AverageOptions): Promise<Bytes>;
  readonly lossScale: number;
  /** The outputs that the option `stepOutputs` names, of the last batch. */
  readonly stepOutputs: Readonly<Record<string, Tensor>>;
  /** Its number in events. */
  readonly id: number;
  metrics(): Promise<Metrics>;
  explain(): Promise<Explanation>;
  memory(): Promise<MemoryReport>;
  trim(): Promise<void>; release(): Promise<void>;
  readonly timings: Timings;
}
/** Addresses, bytes or Blobs of what onnxruntime-training's generate_artifacts made. */
export interface TrainingArtifacts {
  trainModel: ArtifactFile;
  checkpointState: ArtifactFile;
  evalModel?: ArtifactFile | undefined;
  optimizerModel?: ArtifactFile | undefined;
}
export type ArtifactFile = string | URL | Uint8Array | ArrayBuffer | Blob | Response;
/** As onnxruntime-web's TrainingSession had it (1.17 to 1.19), and additions: rates, a checkpoint, and an inference model. */
export interface ArtifactSession {
  readonly trainingInputNames: readonly string[];
  readonly trainingOutputNames: readonly string[];
  readonly evalInputNames: readonly string[];
  readonly evalOutputNames: readonly string[];
  runTrainStep(feeds: Feeds, options?: StopOptions): Promise<Record<string, Tensor>>;
  runTrainStep(feeds: Feeds, fetches: InferenceSession.FetchesType, options?: StopOptions): Promise<Record<string, Tensor>>;
  runOptimizerStep(options?: StopOptions): Promise<void>;
  lazyResetGrad(): Promise<void>;
  runEvalStep(feeds: Feeds, options?: StopOptions): Promise<Record<string, Tensor>>;
  runEvalStep(feeds: Feeds, fetches: InferenceSession.FetchesType, options?: StopOptions): Promise<Record<string, Tensor>>;
  getParametersSize(trainableOnly?: boolean): Promise<number>;
  loadParametersBuffer(buffer: Uint8Array | Float32Array | ArrayBuffer | Tensor, trainableOnly?: boolean): Promise<void>;
  getContiguousParameters(trainableOnly?: boolean): Promise<Tensor>;
  setLearningRate(rate: number): void;
  getLearningRate(): number;
  state(): Promise<Bytes>;
  load(checkpoint: Uint8Array | ArrayBuffer): Promise<void>;
  export(): Promise<Bytes>;
  memory(): Promise<MemoryReport>;
  release(): Promise<void>;
}
export const TrainingSession: {
  create(artifacts: TrainingArtifacts, options?: Partial<TrainingOptions>): Promise<ArtifactSession>;
  create(model: string | URL | Uint8Array | ArrayBuffer | Blob | Response, options: TrainingOptions): Promise<TrainingSession>;
};
