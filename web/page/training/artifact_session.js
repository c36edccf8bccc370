// Trains with the artifacts of onnxruntime-training, under the names that onnxruntime-web had (1.17 to 1.19).
// Twin of pyruntime/native/training/artifact_session.py.

import { InvalidInput } from '../../common/errors.js';
import { TrainingSession } from './session.js';
import { joined, split, totalSize } from './vectors.js';

/** @import { TrainingArtifacts } from '../../common/protocol.js' */
/** @import { Feeds, PageParts } from './session.js' */
/** @typedef {{ trainModel: any, checkpointState: any, evalModel?: any, optimizerModel?: any }} Given */

const FILES = /** @type {const} */ ({ checkpointState: 'checkpoint', optimizerModel: 'optimizer', evalModel: 'evaluation' });
const NAMES = ['trainModel', ...Object.keys(FILES)];

/** @param {any} model the first argument of TrainingSession.create */
export const isArtifacts = (model) => Object.prototype.toString.call(model) === '[object Object]' && 'trainModel' in model;

/**
 * @param {PageParts} parts @param {Given} given @param {Record<string, any>} [options]
 */
export async function createWithArtifacts(parts, given, options) {
  const unknown = Object.keys(given).find((name) => !NAMES.includes(name));
  if (unknown || !given.checkpointState) {
    throw new InvalidInput(unknown ? `there is no artifact "${unknown}"` : 'checkpointState is missing', { hint: `artifacts are ${NAMES.join(', ')}` });
  }
  const present = Object.entries(FILES).filter(([name]) => given[/** @type {keyof Given} */ (name)]);
  const path = (/** @type {string} */ file) => `artifacts/${file}`;
  const externalData = present.map(([name, file]) => ({ path: path(file), data: given[/** @type {keyof Given} */ (name)] }));
  const artifacts = Object.fromEntries(present.map(([, file]) => [file, path(file)]));
  const { Tensor } = /** @type {any} */ (parts.InferenceSession)[Symbol.for('pyruntime.parts')];
  const session = await TrainingSession.create(parts, given.trainModel, { ...options, externalData, artifacts });
  return new ArtifactSession(session, 'optimizer' in artifacts, 'evaluation' in artifacts, Tensor).begin();
}

class ArtifactSession {
  /** @param {TrainingSession} session @param {boolean} hasOptimizer @param {boolean} hasEvaluation @param {any} Tensor */
  constructor(session, hasOptimizer, hasEvaluation, Tensor) {
    this.session = session;
    this.hasOptimizer = hasOptimizer;
    this.Tensor = Tensor;
    this.about = /** @type {TrainingArtifacts} */ (session.info.artifacts);
    this.rate = this.about.rate;
    this.trainingInputNames = this.about.inputs;
    this.trainingOutputNames = this.about.outputs;
    this.evalInputNames = hasEvaluation ? this.about.inputs : [];
    this.evalOutputNames = hasEvaluation ? this.about.outputs : [];
    /** Calls follow one another. @type {Promise<unknown>} */
    this.queue = Promise.resolve();
  }

  /** Goes on from the moments of the checkpoint. */
  async begin() {
    const { session, about: { corrects, moments, step } } = this;
    if (!corrects) Object.assign(session.counts, { beta1: 0, beta2: 0 });
    if (moments.length) await session.states('update', await this.places(moments));
    session.counts.step = step;
    return this;
  }

  /**
   * Adds the gradients of a batch to those since `lazyResetGrad`. Returns the loss and other outputs of the training model.
   * @param {Feeds} feeds @param {any} [fetches] names, an object whose keys are names, or the options @param {{ signal?: AbortSignal }} [options]
   * @returns {Promise<Record<string, any>>}
   */
  runTrainStep(feeds, fetches, options) {
    const { names, settings } = this.wanted(fetches, options);
    return this.inTurn(async () => {
      const { loss } = await this.session.accumulate(feeds, settings);
      const all = { [this.about.outputs[0]]: this.scalar(loss), ...this.session.stepOutputs };
      return Object.fromEntries(names.map((name) => [name, all[name]]));
    });
  }

  /** Changes the weights by the sums of the gradients, which stay until `lazyResetGrad`. @param {{ signal?: AbortSignal }} [options] */
  runOptimizerStep(options = {}) {
    return this.inTurn(async () => {
      if (!this.hasOptimizer) throw new InvalidInput('the session has no optimiser', { hint: 'give optimizerModel' });
      const { counts } = this.session;
      const { waiting } = counts;
      await this.session.apply({ signal: options.signal, rate: this.rate, sum: true });
      counts.waiting = waiting;
    });
  }

  /** The next batch begins new sums of gradients. */
  lazyResetGrad() {
    return this.inTurn(async () => {
      this.session.counts.waiting = 0;
    });
  }

  /** The outputs of the training model, with operators as in inference. @param {Feeds} feeds @param {any} [fetches] @param {{ signal?: AbortSignal }} [options] */
  runEvalStep(feeds, fetches, options) {
    const { names, settings } = this.wanted(fetches, options);
    return this.inTurn(async () => {
      const { loss, ...found } = await this.session.evaluate(feeds, names, settings);
      return found;
    });
  }

  /** @param {any} fetches @param {{ signal?: AbortSignal } | undefined} options */
  wanted(fetches, options) {
    const { outputs } = this.about;
    const given = Array.isArray(fetches) ? fetches : Object.keys(fetches ?? {});
    const isOptions = !Array.isArray(fetches) && !given.some((name) => outputs.includes(name));
    const unknown = isOptions ? undefined : given.find((name) => !outputs.includes(name));
    if (unknown !== undefined) throw new InvalidInput(`output "${unknown}" does not exist`, { hint: `outputs are ${outputs.join(', ')}` });
    return { names: isOptions ? outputs : given, settings: options ?? (isOptions ? fetches : undefined) ?? {} };
  }

  /** @param {number} rate of learning; onnxruntime-web has no such call, and 0.001 */
  setLearningRate(rate) {
    this.rate = rate;
  }

  getLearningRate() {
    return this.rate;
  }

  // ── parameters ──

  async getParametersSize(trainableOnly = true) {
    return totalSize(this.parameters(trainableOnly));
  }

  /** The parameters as one vector, in the order of the training model's inputs. */
  getContiguousParameters(trainableOnly = true) {
    const shapes = this.parameters(trainableOnly);
    return this.inTurn(async () => {
      const frozen = Object.entries(await this.frozen()).map(([name, data]) => [name, { data }]);
      const vector = joined(shapes, { ...await this.session.weights(), ...Object.fromEntries(frozen) });
      return new this.Tensor('float32', vector, [vector.length]);
    });
  }

  /** Replaces parameters by such a vector. @param {any} buffer a Float32Array, its bytes, or a tensor */
  loadParametersBuffer(buffer, trainableOnly = true) {
    const shapes = this.parameters(trainableOnly);
    const parts = split(shapes, buffer);
    return this.inTurn(async () => {
      const frozen = await this.frozen();
      const other = parts.find(([name, data]) => frozen[name]?.some((x, n) => x !== data[n]));
      if (other) throw new InvalidInput(`"${other[0]}" is frozen and would change`, { hint: 'create the session with another checkpoint' });
      const tensors = parts.map(([name, data], n) => [name, new this.Tensor('float32', data, shapes[n].shape)]);
      await this.session.setWeights(Object.fromEntries(tensors.filter(([name]) => !frozen[name])));
    });
  }

  /** @param {boolean} trainableOnly */
  parameters(trainableOnly) {
    return this.about.parameters.filter(({ name }) => !trainableOnly || this.isTrained(name));
  }

  /** @param {string} name */
  isTrained(name) {
    return this.session.shapes(true).some((one) => one.name === name);
  }

  /** The values of frozen parameters. @returns {Promise<Record<string, Float32Array>>} */
  async frozen() {
    const places = this.about.parameters.filter(({ name }) => !this.isTrained(name)).map(({ name, place }) => /** @type {Place} */ ([name, ...place]));
    const found = places.length ? await this.places(places) : {};
    return Object.fromEntries(Object.entries(found).map(([name, bytes]) => [name, new Float32Array(bytes.slice().buffer)]));
  }

  /** Parts of the checkpoint. @typedef {[name: string, start: number, size: number]} Place @param {Place[]} places */
  places(places) {
    const text = JSON.stringify({ file: 'artifacts/checkpoint', places });
    return this.session.states('places', { places: new TextEncoder().encode(text) });
  }

  // ── the rest ──

  /** A checkpoint as of `TrainingSession`. */
  state() {
    return this.inTurn(() => this.session.state());
  }

  /** @param {Uint8Array | ArrayBuffer} file of `state` */
  load(file) {
    return this.inTurn(() => this.session.load(file));
  }

  /** An inference model with the current parameters, whose outputs are the additional ones of the training model. */
  export() {
    return this.inTurn(() => this.session.export());
  }

  memory() {
    return this.session.memory();
  }

  release() {
    return this.session.release();
  }

  /** @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  inTurn(work) {
    const done = this.queue.then(work);
    this.queue = done.catch(() => {});
    return done;
  }

  /** @param {number} value */
  scalar(value) {
    return new this.Tensor('float32', Float32Array.of(value), []);
  }
}
