// Trains a model in the engine's worker. Twin of pyruntime/training/session/core.py.

import { InvalidInput } from '../../common/errors.js';
import { warn } from '../../common/log.js';
import * as safetensors from '../../common/safetensors.js';
import { differingDims } from '../../common/dim_names.js';
import { FIRST_SCALE, StepNumbers } from '../../runtime/step_numbers.js';
import { fromCheckpoint, toCheckpoint } from './checkpoint.js';
import { joined, split, totalSize } from './vectors.js';

/** @import { TrainingInfo } from '../../common/protocol.js' */
/** @import { Handler } from '../sessions/handler.js' */
/** What it needs of the page (load_code.js). @typedef {{ backend: any, InferenceSession: any, runOptions: any, withAddress: any }} PageParts */
/** @typedef {Record<string, any>} Feeds */
/** @typedef {{ rate?: number, signal?: AbortSignal }} StepOptions */
/**
 * loss: of the batch, before the step; norm: of all gradients; applied: whether weights were changed
 * @typedef {{ loss: number, norm: number, rate: number, step: number, applied: boolean }} StepResult
 */

// names in the graph of a step (pyruntime/training/graph/graph_names.py)
const [NUMBERS, APPLY, RESULT, APPLIED, LOSS] = ['numbers', 'apply', 'result', 'applied', 'loss'].map((name) => `training:${name}`);
const OWN = ['loss', 'optimizer', 'schedule', 'trainable', 'frozen', 'accumulate', 'mode', 'clip', 'proximal', 'seed', 'onNan', 'lora', 'stepOutputs', 'artifacts', 'lossScale', 'memory'];
/** Of the page. @type {any} */
let Tensor = null;

/** @param {TrainingInfo} info */
function stepNumbers({ settings, schedule, seed, lossScale }) {
  const { rate, beta1 = 0, beta2 = 0 } = settings;
  const { kind, warmup = 0, steps = 0, end = 0, every = 1, factor = 1 } = /** @type {any} */ (schedule);
  return new StepNumbers(rate, beta1, beta2, kind, warmup, steps, end, every, factor, seed, 0, 0, 0, lossScale || FIRST_SCALE, lossScale === 0);
}

/** @param {number} rate of learning */
function checkRate(rate) {
  if (!(Number.isFinite(rate) && rate >= 0)) throw new InvalidInput(`rate cannot be ${rate}`, { hint: 'a number from 0 on' });
}

export class TrainingSession {
  /** @param {Handler} handler @param {TrainingInfo} info @param {PageParts} parts */
  constructor(handler, info, parts) {
    this.parts = parts;
    this.handler = handler;
    this.info = info;
    this.counts = stepNumbers(info);
    /** The outputs that the last batch's step also computed. @type {Record<string, any>} */
    this.stepOutputs = {};
    /** Steps follow one another. @type {Promise<unknown>} */
    this.queue = Promise.resolve();
  }

  /** @param {PageParts} parts @param {any} model @param {Record<string, any>} options @returns {Promise<TrainingSession>} */
  static async create(parts, model, options = {}) {
    ({ Tensor } = /** @type {any} */ (parts.InferenceSession)[Symbol.for('pyruntime.parts')]);
    const own = Object.fromEntries(OWN.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]));
    const rest = Object.fromEntries(Object.entries(options).filter(([name]) => !OWN.includes(name)));
    const learning = { training: JSON.stringify(own, plainBytes) };
    const handler = await parts.withAddress(model, (/** @type {any} */ accepted) => parts.backend.createInferenceSessionHandler(/** @type {any} */ (accepted), rest, learning));
    const session = new TrainingSession(handler, /** @type {TrainingInfo} */ (handler.about.training), parts);
    if (own.memory) await session.states('alone');
    return session;
  }

  // ── steps ──

  /** @param {Feeds} feeds @param {StepOptions} [options] @returns {Promise<StepResult>} */
  async step(feeds, options = {}) {
    checkRate(options.rate ?? 0);
    if (!this.info.accumulates) return this.inTurn(() => this.stepOnce(feeds, options));
    if (this.counts.waiting) throw new InvalidInput('gradients of earlier batches wait for a step', { hint: 'call apply()' });
    const first = await this.accumulate(feeds, options);
    return this.counts.waiting ? { ...await this.apply(options), loss: first.loss } : first; // without gradients that are finite
  }

  /** @param {Feeds} feeds @param {StepOptions} options */
  async stepOnce(feeds, { rate = this.counts.rateNow(), signal }) {
    const [loss, good, norm] = await this.run(RESULT, feeds, rate, 1, signal);
    this.counts.batch++;
    return this.stepped(loss, good, norm, rate, this.counts.adapts(Number.isFinite(loss), good > 0));
  }

  /** @param {Feeds} feeds @param {StepOptions} [options] @returns {Promise<StepResult>} */
  accumulate(feeds, { signal } = {}) {
    this.requireAccumulation();
    return this.inTurn(async () => {
      const rate = this.counts.rateNow();
      const [loss, good, norm] = await this.run(RESULT, feeds, rate, 1, signal);
      this.counts.batch++;
      if (good || this.counts.waiting) this.counts.waiting++;
      if (!this.counts.adapts(Number.isFinite(loss), good > 0) && !good) this.warnOf(loss, norm);
      return this.told('batch', { loss, norm, rate, step: this.counts.step, applied: false });
    });
  }

  /** @param {StepOptions & { sum?: boolean }} [options] @returns {Promise<StepResult>} */
  apply({ rate = this.counts.rateNow(), sum = false, signal } = {}) {
    this.requireAccumulation();
    return this.inTurn(async () => {
      checkRate(rate);
      const { waiting } = this.counts;
      if (!waiting) throw new InvalidInput('no gradients wait for a step', { hint: 'call accumulate(feeds) first' });
      const [, good, norm] = await this.run(APPLIED, {}, rate, sum ? 1 : 1 / waiting, signal, 1);
      this.counts.waiting = 0;
      return this.stepped(good ? 0 : NaN, good, norm, rate);
    });
  }

  /** @param {Feeds} feeds @param {string[]} [outputs] @param {StepOptions} [options] @returns {Promise<Record<string, any>>} */
  evaluate(feeds, outputs, { signal } = {}) {
    return this.inTurn(async () => {
      const hasTargets = Object.keys(this.info.targets).every((name) => Object.hasOwn(feeds, name));
      const names = outputs ?? (hasTargets ? [] : this.info.outputs);
      const wanted = hasTargets ? [LOSS, ...names] : names;
      const { [LOSS]: loss, ...found } = await this.send(wanted, this.feeds(feeds, 0, 1, 0), signal);
      return hasTargets ? { loss: loss.data[0], ...found } : found;
    });
  }

  /**
   * @param {string} name @param {Feeds} feeds @param {number} rate @param {number} scale @param {AbortSignal} [signal] @param {number} [apply]
   * @returns {Promise<number[]>} loss, whether it and the gradients are finite, norm
   */
  async run(name, feeds, rate, scale, signal, apply = 0) {
    const also = name === RESULT ? this.info.stepOutputs : {};
    const results = await this.send([name, ...Object.values(also)], this.feeds(feeds, rate, scale, apply), signal);
    if (name === RESULT) this.stepOutputs = Object.fromEntries(Object.entries(also).map(([output, own]) => [output, results[own]]));
    return [...results[name].data];
  }

  /** @param {string[]} names @param {Feeds} feeds @param {AbortSignal} [signal] */
  send(names, feeds, signal) {
    const fetches = Object.fromEntries(names.map((name) => [name, null]));
    const settings = signal ? this.parts.runOptions({ signal }) : null;
    return this.handler.watch.during((run) => this.handler.run(feeds, fetches, settings, run));
  }

  /** @param {Feeds} feeds @param {number} rate @param {number} scale @param {number} apply @returns {Feeds} */
  feeds(feeds, rate, scale, apply) {
    if (typeof feeds !== 'object' || feeds === null) throw new InvalidInput('feeds must be an object of tensors by name');
    const numbers = Float32Array.from(this.counts.numbers(rate, scale));
    /** @type {Feeds} */
    const found = { ...feeds, [NUMBERS]: new Tensor('float32', numbers, [numbers.length]) };
    if (this.info.accumulates) found[APPLY] = new Tensor('float32', new Float32Array(apply), [apply]);
    for (const [name, type] of Object.entries(this.info.targets)) if (feeds[name]) found[name] = fitted(feeds[name], type);
    const known = this.handler.inputs.filter(({ name, shape }) => shape?.length === found[name]?.dims?.length);
    for (const [dim, names] of differingDims(known, found)) {
      if (!names.some((name) => Object.hasOwn(this.info.targets, name))) continue;
      throw new InvalidInput(`dims named "${dim}" have different sizes in the inputs ${names.map((name) => `'${name}'`).join(', ')}`);
    }
    return found;
  }

  /**
   * hasNewScale: a smaller scale of the loss may help the next step, so that there is nothing to tell
   * @param {number} loss @param {number} good @param {number} norm @param {number} rate @param {boolean} [hasNewScale] @returns {StepResult}
   */
  stepped(loss, good, norm, rate, hasNewScale = false) {
    if (good) this.counts.step++;
    else if (!hasNewScale) this.warnOf(loss, norm);
    return this.told('step', { loss, norm, rate, step: this.counts.step, applied: good > 0 });
  }

  /** The result, of which listeners of 'session' hear. @param {'step' | 'batch'} type @param {StepResult} result */
  told(type, result) {
    this.handler.watch.tell(type, { batch: this.counts.batch, ...result });
    return result;
  }

  /** @param {number} loss @param {number} norm */
  warnOf(loss, norm) {
    const what = Number.isFinite(loss) ? `the gradients have norm ${norm}` : `the loss is ${loss}`;
    warn(`step ${this.counts.step + 1} (batch ${this.counts.batch}) changed no weight: ${what}; a lower rate or clip may help`, this.handler.logOptions);
  }

  requireAccumulation() {
    if (!this.info.accumulates) throw new InvalidInput('this session makes a step of each batch', { hint: 'create it with accumulate: true' });
  }

  /** The result of `work`, after that of earlier calls. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  inTurn(work) {
    const done = this.queue.then(work);
    this.queue = done.catch(() => {});
    return done;
  }

  // ── weights ──

  /** Name, shape and type of the weights that are trained. */
  parameters() {
    return this.info.weights.slice(0, this.info.count).map(({ name, shape, dtype }) => ({ name, shape: [...shape], dtype }));
  }

  /** Copies of the weights that are trained, and of running statistics. @returns {Promise<Record<string, any>>} */
  weights() {
    return this.inTurn(async () => {
      const values = await this.states('read');
      return Object.fromEntries(this.info.weights.filter(({ name }) => values[name]).map(({ name, shape, dtype }) => (
        [name, new Tensor(dtype, arrayOf(values[name], dtype), shape)])));
    });
  }

  /** Replaces weights. @param {Record<string, any>} tensors by name */
  setWeights(tensors) {
    const values = Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => {
      const weight = this.info.weights.find((one) => one.name === name);
      if (!weight) throw new InvalidInput(`"${name}" is not trained`, { hint: `weights are ${this.info.weights.map((one) => one.name).join(', ')}` });
      if (String(tensor.dims) !== String(weight.shape)) throw new InvalidInput(`"${name}" has shape [${weight.shape}], not [${tensor.dims}]`);
      return [name, bytesOf(fitted(tensor, weight.dtype).data)];
    }));
    return this.inTurn(async () => void await this.states('update', { ...values, ...this.anchors(values) }));
  }

  /** What the proximal term holds weights near from now on: the values that were loaded last. @param {Record<string, Uint8Array>} values */
  anchors(values) {
    const names = this.info.isProximal ? this.shapes(true).map(({ name }) => name) : [];
    return Object.fromEntries(names.filter((name) => values[name]).map((name) => [`start/${name}`, values[name].slice()]));
  }

  /** How many numbers `getContiguousParameters` returns. */
  async getParametersSize(trainableOnly = true) {
    return totalSize(this.shapes(trainableOnly));
  }

  /**
   * The trained weights as one float32 tensor, in the order of `parameters()`; with `trainableOnly` false followed by running
   * statistics. @returns {Promise<any>}
   */
  async getContiguousParameters(trainableOnly = true) {
    const shapes = this.shapes(trainableOnly);
    const vector = joined(shapes, await this.weights());
    return new Tensor('float32', vector, [vector.length]);
  }

  /** Replaces weights by such a vector. @param {any} buffer a Float32Array, its bytes, or a tensor */
  async loadParametersBuffer(buffer, trainableOnly = true) {
    const shapes = this.shapes(trainableOnly);
    const parts = split(shapes, buffer).map(([name, data], n) => [name, new Tensor('float32', data, shapes[n].shape)]);
    return this.setWeights(Object.fromEntries(parts));
  }

  /** @param {boolean} trainableOnly */
  shapes(trainableOnly) {
    return trainableOnly ? this.info.weights.slice(0, this.info.count) : this.info.weights;
  }

  /** A checkpoint: the bytes of a safetensors file. @returns {Promise<Uint8Array>} */
  state() {
    return this.inTurn(async () => toCheckpoint(await this.states('read'), this.info, this.counts));
  }

  /** Goes on from a checkpoint. @param {Uint8Array | ArrayBuffer} file */
  load(file) {
    const { values, counts } = fromCheckpoint(file instanceof Uint8Array ? file : new Uint8Array(file), this.info);
    if (!Object.keys(values).some((name) => name.startsWith('start/'))) Object.assign(values, this.anchors(values));
    return this.inTurn(async () => {
      await this.states('replace', values);
      Object.assign(this.counts, counts);
    });
  }

  /** The model's file with the new weights. @returns {Promise<Uint8Array>} */
  export() {
    return this.inTurn(async () => (await this.states('export')).model);
  }

  /** The adapters alone: a safetensors file with PEFT's names, and its configuration in the metadata. @returns {Promise<Uint8Array>} */
  adapter() {
    const { lora } = this.info;
    if (!lora) throw new InvalidInput('this session trains no adapters', { hint: 'create it with lora: { rank: 8 }' });
    return this.inTurn(async () => {
      const values = await this.states('read');
      const own = this.info.weights.filter(({ name }) => lora.names.includes(name));
      const tensors = Object.fromEntries(own.map(({ name, shape, dtype }) => [name, { dtype, shape, bytes: values[name] }]));
      return safetensors.write(tensors, { format: 'pt', adapter_config: lora.config });
    });
  }

  /** @param {import('../../common/protocol.js').TrainParams['how']} how @param {Record<string, Uint8Array>} [values] @returns {Promise<Record<string, Uint8Array>>} */
  states(how, values = {}) {
    this.handler.checkUsable();
    const { caller, session } = this.handler.worker;
    return caller.call('train', { session, how, values });
  }

  // ── the rest ──

  /** What the loss of the next batch is multiplied by, so that small gradients are no zeros in float16. */
  get lossScale() {
    return this.counts.lossScale;
  }

  /** Its number in events. */
  get id() {
    return this.handler.watch.id;
  }

  /** What the session has counted. */
  metrics() {
    return this.handler.metrics();
  }

  /** Which node runs where, and why. */
  explain() {
    return this.handler.report('explain');
  }

  memory() {
    return this.handler.memory(undefined);
  }

  trim() {
    return this.handler.trim();
  }

  release() {
    return this.handler.dispose();
  }

  get timings() {
    return this.handler.timings;
  }
}

/** A target in the type of its feed: labels may be any integers, other targets any numbers. @param {any} x a tensor @param {string} type */
function fitted(x, type) {
  if (!(x?.data && x.dims) || x.type === type) return x;
  const isWhole = /^u?int/.test(x.type);
  if (type === 'int64') return isWhole ? new Tensor('int64', BigInt64Array.from(x.data, BigInt), x.dims) : x;
  const numbers = Array.from(x.data, Number);
  return new Tensor(type, type === 'float64' ? Float64Array.from(numbers) : Float32Array.from(numbers), x.dims);
}

/** Bytes, such as the graph of a loss, as JSON. @param {string} _ @param {any} value */
function plainBytes(_, value) {
  if (!(value instanceof ArrayBuffer || ArrayBuffer.isView(value))) return value;
  const bytes = value instanceof ArrayBuffer ? new Uint8Array(value) : new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  return { base64: btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join('')) };
}

/** @param {Uint8Array} bytes @param {string} dtype */
const arrayOf = ({ buffer, byteOffset, length }, dtype) => (
  dtype === 'float64' ? new Float64Array(buffer, byteOffset, length / 8) : new Float32Array(buffer, byteOffset, length / 4));

/** A copy of an array's bytes. @param {any} array */
const bytesOf = ({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength).slice();
