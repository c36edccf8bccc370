// The weights of a session that trains, which its worker has: copies, new values, checkpoints, files of the model and of adapters.

import { InvalidInput } from '../../common/errors.js';
import { optionsOf } from '../../common/records.js';
import * as safetensors from './safetensors.js';
import { StepNumbers } from '../../runtime/step_numbers.js';
import { AVERAGE, START, TrainedWeights } from '../../runtime/trained_weights.js';
import { fromCheckpoint, toCheckpoint } from './checkpoint.js';
import { arrayOf, bytesOf, fitted, joined, split } from './values.js';

/** @typedef {{ average?: boolean | null }} Averaged */
/** @import { TrainingInfo } from '../../common/protocol.js' */
/** @import { Handler } from '../sessions/handler.js' */
/** What it needs of the page (load_code.js). @typedef {{ backend: any, InferenceSession: any, Tensor: any, ask: any, runOptions: any, snapshot: any, withAddress: any, SESSION: object }} PageParts */

export class SessionWeights {
  /** @param {Handler} handler @param {TrainingInfo} info @param {PageParts} parts */
  constructor(handler, info, parts) {
    this.handler = handler;
    this.info = info;
    this.parts = parts;
    this.counts = new StepNumbers(info.settings, info.schedule, info.timing, info.seed, info.lossScale);
    this.trained = new TrainedWeights(info.weights, info.count, info.copies, info.moments);
    /** Calls follow one another. @type {Promise<unknown>} */
    this.queue = Promise.resolve();
  }

  /** The result of `work`, after that of earlier calls. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  inTurn(work) {
    const done = this.queue.then(work);
    this.queue = done.catch(() => {});
    return done;
  }

  /** Name, shape and type of the weights that are trained, and why they are. */
  parameters() {
    const { reasons } = this.info;
    return this.trained.listed(true).map(({ name, shape, dtype }) => ({ name, shape: [...shape], dtype, reason: reasons[name] ?? '' }));
  }

  /** Copies of the weights that are trained (average: of their averages), and of running statistics. @param {Averaged} [options] @returns {Promise<Record<string, any>>} */
  async weights(options) {
    const { average } = optionsOf(options, { average: false }, 'weights');
    return this.averaged(average, () => this.tensors());
  }

  /** States by name of the weight that they belong to. @param {string} [prefix] of their names @param {TrainingInfo['weights']} [weights] */
  async tensors(prefix = '', weights = this.info.weights) {
    const values = await this.states('read');
    const known = weights.filter(({ name }) => values[prefix + name]);
    return Object.fromEntries(known.map(({ name, shape, dtype }) => [name, new this.parts.Tensor(dtype, arrayOf(values[prefix + name], dtype), shape)]));
  }

  /** Steps no longer change these weights; returns the names of all that are frozen now. @param {string | string[]} names or patterns @returns {Promise<string[]>} */
  async freeze(names) {
    return this.inTurn(async () => this.trained.freeze(patterns(names), true));
  }

  /** Steps change these weights again. @param {string | string[] | null} [names] or patterns @returns {Promise<string[]>} */
  async unfreeze(names) {
    return this.inTurn(async () => this.trained.freeze(patterns(names ?? '*'), false));
  }

  /** Replaces weights. @param {Record<string, any>} tensors by name */
  async setWeights(tensors) {
    if (typeof tensors !== 'object' || tensors === null) throw new InvalidInput('weights must be an object of tensors by name');
    const values = Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => {
      if (!tensor?.dims) throw new InvalidInput(`the weight "${name}" must be a tensor`);
      this.trained.check(name, [...tensor.dims]);
      return [name, bytesOf(fitted(tensor, this.trained.named(name).dtype).data)];
    }));
    return this.inTurn(async () => void await this.states('update', { ...values, ...this.copiedStates(values, START) }));
  }

  /** What sets the weights back to those of now. The proximal term goes on holding them near the same values. @returns {Promise<() => Promise<void>>} */
  async keep() {
    const values = await this.inTurn(() => this.states('read'));
    const own = Object.fromEntries(this.info.weights.filter(({ name }) => values[name]).map(({ name }) => [name, values[name]]));
    return () => this.inTurn(async () => void await this.states('update', own));
  }

  /** Values of states that begin with those of weights. @param {Record<string, Uint8Array>} values @param {string[]} prefixes of their names */
  copiedStates(values, ...prefixes) {
    return Object.fromEntries(this.trained.copied(Object.keys(values), prefixes).map(([state, name]) => [state, values[name].slice()]));
  }

  /** The result of `work`, in its turn, if that is wanted with the averages of the weights in their place. @template T @param {boolean} average @param {() => Promise<T>} work */
  async averaged(average, work) {
    if (!average) return this.inTurn(work);
    this.trained.checkAverage();
    return this.inTurn(async () => {
      const values = await this.states('read');
      const own = this.trained.listed(true).filter(({ name }) => this.counts.step && values[AVERAGE + name]);
      const of = (/** @type {string} */ prefix) => Object.fromEntries(own.map(({ name }) => [name, values[prefix + name].slice()]));
      await this.states('update', of(AVERAGE));
      try {
        return await work();
      } finally {
        await this.states('update', of(''));
      }
    });
  }

  /** How many numbers `getContiguousParameters` returns. @param {boolean | null} [trainableOnly] */
  async getParametersSize(trainableOnly) {
    return this.trained.size(trainableOnly ?? true);
  }

  /**
   * The trained weights as one float32 tensor, in the order of `parameters()`; with `trainableOnly` false followed by running
   * statistics. @param {boolean | null} [trainableOnly] @returns {Promise<any>}
   */
  async getContiguousParameters(trainableOnly) {
    return this.vector(joined(this.trained, trainableOnly ?? true, await this.weights()));
  }

  /** @param {Float32Array} numbers */
  vector(numbers) {
    return new this.parts.Tensor('float32', numbers, [numbers.length]);
  }

  /** Replaces weights by such a vector. @param {any} buffer a Float32Array, its bytes, or a tensor @param {boolean | null} [trainableOnly] */
  async loadParametersBuffer(buffer, trainableOnly) {
    const parts = split(this.trained, trainableOnly ?? true, buffer);
    return this.setWeights(Object.fromEntries(parts.map(({ name, shape, data }) => [name, new this.parts.Tensor('float32', data, shape)])));
  }

  /** A checkpoint: the bytes of a safetensors file. @returns {Promise<Uint8Array>} */
  async state() {
    return this.inTurn(async () => toCheckpoint(await this.states('read'), this.trained, this.counts, this.info.optimizer));
  }

  /** Goes on from a checkpoint. @param {Uint8Array | ArrayBuffer} file */
  async load(file) {
    const isBytes = ArrayBuffer.isView(file) || /** @type {ArrayBuffer | null | undefined} */ (file)?.byteLength !== undefined;
    if (!isBytes) throw new InvalidInput('a checkpoint is given as bytes', { hint: 'a Uint8Array, as state() returns it' });
    const bytes = ArrayBuffer.isView(file) ? bytesOf(file) : new Uint8Array(file.slice(0)); // which the caller may change
    return this.inTurn(async () => {
      const values = fromCheckpoint(bytes, this.trained, this.counts, this.info.optimizer);
      await this.states('replace', { ...values, ...this.copiedStates(values, START, AVERAGE) });
    });
  }

  /** The model's file with the new weights (average: their averages). @param {Averaged} [options] @returns {Promise<Uint8Array>} */
  async export(options) {
    const { average } = optionsOf(options, { average: false }, 'export');
    return this.averaged(average, async () => (await this.states('export')).model);
  }

  /** The adapters alone: a safetensors file with PEFT's names, and its configuration in the metadata. @returns {Promise<Uint8Array>} */
  async adapter() {
    const { lora } = this.info;
    if (!lora) throw new InvalidInput('this session trains no adapters', { hint: 'create it with lora: { rank: 8 }' });
    return this.inTurn(async () => {
      const values = await this.states('read');
      const own = this.info.weights.filter(({ name }) => lora.names.includes(name));
      const tensors = Object.fromEntries(own.map(({ name, shape, dtype }) => [name, { dtype, shape, bytes: values[name] }]));
      return safetensors.write(tensors, { format: 'pt', adapter_config: lora.config });
    });
  }

  /** @param {import('../../common/protocol.js').TrainParams['how']} how @param {import('../../common/protocol.js').TrainParams['values']} [values] @returns {Promise<Record<string, Uint8Array>>} */
  async states(how, values = {}) {
    this.handler.checkUsable();
    const { caller, session } = this.handler.worker;
    return caller.call('train', { session, how, values });
  }

  /** What the loss of the next batch is multiplied by, so that small gradients are no zeros in float16. */
  get lossScale() {
    return this.counts.lossScale;
  }

  /** Its number in events. */
  get id() {
    return this.handler.watch.id;
  }

  /** What the session has counted. */
  async metrics() {
    return this.handler.metrics();
  }

  /** Which node runs where, and why. */
  async explain() {
    return this.handler.report('explain');
  }

  async memory() {
    return this.handler.memory(undefined);
  }

  async trim() {
    return this.handler.trim();
  }

  async release() {
    return this.handler.dispose();
  }

  get timings() {
    return this.handler.timings;
  }
}

/** @param {string | string[]} names */
function patterns(names) {
  const found = [names].flat();
  if (found.every((name) => typeof name === 'string')) return found;
  throw new InvalidInput(`names cannot be ${names}`, { hint: 'names or patterns such as "head.*"' });
}
