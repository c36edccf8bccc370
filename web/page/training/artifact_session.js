// Trains with the artifacts of onnxruntime-training, under the names that onnxruntime-web had (1.17 to 1.19).

import { InvalidInput } from '../../common/errors.js';
import { optionsOf } from '../../common/records.js';
import { TrainingSession } from './session.js';
import { TrainedWeights } from '../../runtime/trained_weights.js';
import { joined, split } from './values.js';

/** @import { TrainingArtifacts } from '../../common/protocol.js' */
/** @import { Handler } from '../sessions/handler.js' */
/** @import { Feeds } from './session.js' */
/** @import { PageParts } from './session_weights.js' */
/** Part of the checkpoint. @typedef {[name: string, start: number, size: number]} Place */
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
  const session = /** @type {ArtifactSession} */ (await ArtifactSession.create(parts, given.trainModel, { ...options, externalData, artifacts }));
  session.hasOptimizer = 'optimizer' in artifacts;
  if ('evaluation' in artifacts) Object.assign(session, { evalInputNames: session.about.inputs, evalOutputNames: session.about.outputs });
  return session.begin();
}

class ArtifactSession extends TrainingSession {
  hasOptimizer = false;
  /** @type {string[]} */
  evalInputNames = [];
  /** @type {string[]} */
  evalOutputNames = [];

  /** @param {Handler} handler @param {import('../../common/protocol.js').TrainingInfo} info @param {PageParts} parts */
  constructor(handler, info, parts) {
    super(handler, info, parts);
    this.about = /** @type {TrainingArtifacts} */ (info.artifacts);
    this.rate = this.about.rate;
    this.trainingInputNames = this.about.inputs;
    this.trainingOutputNames = this.about.outputs;
  }

  /** Goes on from the moments of the checkpoint. */
  async begin() {
    const { counts, about: { corrects, moments, step } } = this;
    if (!corrects) Object.assign(counts, { beta1: 0, beta2: 0 });
    if (moments.length) await this.states('update', await this.places(moments));
    counts.step = step;
    return this;
  }

  /**
   * Adds the gradients of a batch to those since `lazyResetGrad`. Returns the loss and other outputs of the training model.
   * @param {Feeds} feeds @param {any} [fetches] names, an object whose keys are names, or the options @param {{ signal?: AbortSignal }} [options]
   * @returns {Promise<Record<string, any>>}
   */
  async runTrainStep(feeds, fetches, options) {
    const { names, settings } = this.wanted(fetches, options, 'runTrainStep');
    const batch = this.copied(feeds);
    return this.inTurn(async () => {
      const { loss } = await this.perform(this.runs.accumulate(), batch, settings.signal);
      const all = { [this.about.outputs[0]]: new this.parts.Tensor('float32', Float32Array.of(loss), []), ...this.stepOutputs };
      return Object.fromEntries(names.map((name) => [name, all[name]]));
    });
  }

  /** Changes the weights by the sums of the gradients, which stay until `lazyResetGrad`. @param {{ signal?: AbortSignal }} [options] */
  async runOptimizerStep(options) {
    const { signal } = optionsOf(options, { signal: null }, 'runOptimizerStep');
    return this.inTurn(async () => {
      if (!this.hasOptimizer) throw new InvalidInput('the session has no optimiser', { hint: 'give optimizerModel' });
      const { waiting } = this.counts;
      await this.perform(this.runs.apply(this.rate, true), {}, signal);
      this.counts.waiting = waiting;
    });
  }

  /** The next batch begins new sums of gradients. */
  async lazyResetGrad() {
    return this.inTurn(async () => {
      this.counts.waiting = 0;
    });
  }

  /** The outputs of the training model, with operators as in inference. @param {Feeds} feeds @param {any} [fetches] @param {{ signal?: AbortSignal }} [options] */
  async runEvalStep(feeds, fetches, options) {
    const { names, settings } = this.wanted(fetches, options, 'runEvalStep');
    return this.evaluate(feeds, names, settings);
  }

  /** @param {any} fetches @param {{ signal?: AbortSignal } | undefined} options @param {string} call its name */
  wanted(fetches, options, call) {
    const { outputs } = this.about;
    const given = Array.isArray(fetches) ? fetches : Object.keys(fetches ?? {});
    const isOptions = !Array.isArray(fetches) && !given.some((name) => outputs.includes(name));
    const unknown = isOptions ? undefined : given.find((name) => !outputs.includes(name));
    if (unknown !== undefined) throw new InvalidInput(`output "${unknown}" does not exist`, { hint: `outputs are ${outputs.join(', ')}` });
    const { signal } = optionsOf(options ?? (isOptions ? fetches : null), { signal: null }, call);
    return { names: isOptions ? outputs : given, settings: { signal } };
  }

  /** @param {number} rate of learning; onnxruntime-web has no such call, and 0.001 */
  setLearningRate(rate) {
    this.rate = rate;
  }

  getLearningRate() {
    return this.rate;
  }

  // ── parameters ──

  /** @override @param {boolean | null} [trainableOnly] */
  async getParametersSize(trainableOnly) {
    return this.listed(trainableOnly).size(true);
  }

  /** The parameters as one vector, in the order of the training model's inputs. @override @param {boolean | null} [trainableOnly] */
  async getContiguousParameters(trainableOnly) {
    return this.inTurn(async () => {
      const frozen = Object.entries(await this.frozen()).map(([name, data]) => [name, { data }]);
      return this.vector(joined(this.listed(trainableOnly), true, { ...await this.tensors(), ...Object.fromEntries(frozen) }));
    });
  }

  /** Replaces parameters by such a vector. @override @param {any} buffer a Float32Array, its bytes, or a tensor @param {boolean | null} [trainableOnly] */
  async loadParametersBuffer(buffer, trainableOnly) {
    const parts = split(this.listed(trainableOnly), true, buffer);
    const frozen = await this.inTurn(() => this.frozen());
    const other = parts.find(({ name, data }) => frozen[name]?.some((x, n) => x !== data[n]));
    if (other) throw new InvalidInput(`"${other.name}" is frozen and would change`, { hint: 'create the session with another checkpoint' });
    const tensors = parts.map(({ name, data, shape }) => [name, new this.parts.Tensor('float32', data, shape)]);
    return this.setWeights(Object.fromEntries(tensors.filter(([name]) => !frozen[name])));
  }

  /** The parameters, in the order of the training model's inputs. @param {boolean | null} [trainableOnly] */
  listed(trainableOnly) {
    const found = this.about.parameters.filter(({ name }) => trainableOnly === false || this.isTrained(name));
    return new TrainedWeights(found.map(({ name, shape }) => ({ name, shape, dtype: 'float32' })), found.length, [], {});
  }

  /** @param {string} name */
  isTrained(name) {
    return this.trained.listed(true).some((one) => one.name === name);
  }

  /** The values of frozen parameters. @returns {Promise<Record<string, Float32Array>>} */
  async frozen() {
    const places = this.about.parameters.filter(({ name }) => !this.isTrained(name)).map(({ name, place }) => /** @type {Place} */ ([name, ...place]));
    const found = places.length ? await this.places(places) : {};
    return Object.fromEntries(Object.entries(found).map(([name, bytes]) => [name, new Float32Array(bytes.slice().buffer)]));
  }

  /** @param {Place[]} places of the checkpoint */
  async places(places) {
    const text = JSON.stringify({ file: 'artifacts/checkpoint', places });
    return this.states('places', { places: new TextEncoder().encode(text) });
  }
}
