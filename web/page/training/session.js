// Trains a model in the engine's worker. pyruntime/runtime/training_steps.py decides which runs a call needs.

import { ExecutionError, InvalidInput, withHint } from '../../common/errors.js';
import { warn } from '../../common/log.js';
import { differingDims } from '../../common/dim_names.js';
import { optionsOf } from '../../common/records.js';
import { GRADIENT } from '../../runtime/trained_weights.js';
import { APPLY, LOSS, NUMBERS, RESULT, labelPlace, TrainingSteps } from '../../runtime/training_steps.js';
import { fit } from './fit.js';
import { checkGiven, fitted } from './values.js';
import { REFUSED, TRAINING_OPTIONS } from './training_options.js';
import { makeSteps } from './several_steps.js';
import { SessionWeights } from './session_weights.js';
import { traced } from './traced_functions.js';

/** @import { TrainingInfo } from '../../common/protocol.js' */
/** @import { StepRun } from '../../runtime/training_steps.js' */
/** @import { Handler } from '../sessions/handler.js' */
/** @import { PageParts } from './session_weights.js' */
/** @typedef {Record<string, any>} Feeds */
/** @typedef {{ rate?: number | null, signal?: AbortSignal | null }} StepOptions */
/** @type {StepOptions} */
const DEFAULTS = { rate: null, signal: null };
/**
 * loss: of the batch, before the step; norm: of all gradients; applied: whether weights were changed
 * @typedef {{ loss: number, norm: number, rate: number, step: number, applied: boolean }} StepResult
 */

const OWN = [...TRAINING_OPTIONS, 'artifacts'];

export class TrainingSession extends SessionWeights {
  /** @param {Handler} handler @param {TrainingInfo} info @param {PageParts} parts */
  constructor(handler, info, parts) {
    super(handler, info, parts);
    this.runs = new TrainingSteps(this.counts, info.accumulates, Object.keys(info.targets), info.outputs, Object.values(info.stepOutputs), this.trained);
    /** Milliseconds of one in the last call of `steps`. */
    this.stepTime = Infinity;
    /** The outputs that the last batch's step also computed. @type {Record<string, any>} */
    this.stepOutputs = {};
  }

  /** @param {PageParts} parts @param {any} model @param {Record<string, any> | null} [options] */
  static async create(parts, model, options) {
    options ??= {};
    const unknown = Object.keys(options).find((name) => (options[name] ?? null) !== null && !OWN.includes(name) && !Object.hasOwn(parts.SESSION, name));
    if (unknown) throw new InvalidInput(`a training session has no option "${unknown}"`, { hint: `its own options are ${TRAINING_OPTIONS.join(', ')}; those of sessions can be given, too` });
    const own = Object.fromEntries(OWN.filter((name) => options[name] !== undefined).map((name) => [name, options[name]]));
    const rest = Object.fromEntries(Object.entries(options).filter(([name]) => !OWN.includes(name)));
    const refused = REFUSED.find((name) => rest[name] && rest[name] !== 'cpu');
    if (refused) throw new InvalidInput(`${refused} cannot be ${rest[refused]} for training`, { hint: 'an option of InferenceSession alone' });
    const changes = { training: JSON.stringify(traced(own), plainValue) };
    const handler = await parts.withAddress(model, (/** @type {any} */ accepted) => parts.backend.createInferenceSessionHandler(/** @type {any} */ (accepted), rest, changes));
    const session = new this(handler, /** @type {TrainingInfo} */ (handler.about.training), parts);
    if (own.memory) await session.states('alone');
    return session;
  }

  /** Name, shape and type of what a step is fed. */
  inputs() {
    const found = this.handler.inputs.filter(({ name }) => name !== NUMBERS && name !== APPLY);
    return found.map(({ name, shape, dtype }) => ({ name, shape: shape && [...shape], dtype }));
  }

  /** @param {Feeds} feeds @param {StepOptions} [options] @returns {Promise<StepResult>} */
  async step(feeds, options) {
    const { rate, signal } = optionsOf(options, DEFAULTS, 'step');
    const batch = this.copied(feeds);
    return this.inTurn(() => this.perform(this.runs.step(checkedRate(rate)), batch, signal));
  }

  /** A step with each batch (several_steps.js). @param {Feeds[]} batches @param {StepOptions} [options] @returns {Promise<StepResult[]>} */
  async steps(batches, options) {
    const { rate, signal } = optionsOf(options, DEFAULTS, 'steps');
    if (!Array.isArray(batches)) throw new InvalidInput('steps needs an array of batches', { hint: '[feeds, feeds]' });
    const copies = batches.map((feeds) => this.copied(feeds));
    return this.inTurn(() => makeSteps(this, copies, checkedRate(rate), signal ?? null, true));
  }

  /** @param {Feeds} feeds @param {StepOptions} [options] @returns {Promise<StepResult>} */
  async accumulate(feeds, options) {
    const { signal } = optionsOf(options, { signal: null }, 'accumulate');
    const batch = this.copied(feeds);
    return this.inTurn(() => this.perform(this.runs.accumulate(), batch, signal));
  }

  /** The gradients of the loss of a batch by name of the weight, without a step. @param {Feeds} feeds @param {StepOptions} [options] @returns {Promise<Feeds>} */
  async gradients(feeds, options) {
    const { signal } = optionsOf(options, { signal: null }, 'gradients');
    const batch = this.copied(feeds);
    return this.inTurn(async () => {
      this.runs.checkGradients(await this.perform(this.runs.gradients(), batch, signal));
      return this.tensors(GRADIENT, this.trained.changing());
    });
  }

  /** @param {StepOptions & { sum?: boolean | null }} [options] @returns {Promise<StepResult>} */
  async apply(options) {
    const { rate, sum, signal } = optionsOf(options, { ...DEFAULTS, sum: false }, 'apply');
    return this.inTurn(() => this.perform(this.runs.apply(checkedRate(rate), sum), {}, signal));
  }

  /** @param {Feeds} feeds @param {string[]} [outputs] @param {{ signal?: AbortSignal | null, average?: boolean | null }} [options] average: with the averages of the weights @returns {Promise<Record<string, any>>} */
  async evaluate(feeds, outputs, options) {
    const { signal, average } = optionsOf(options, { signal: null, average: false }, 'evaluate');
    const names = outputs ?? [];
    if (!Array.isArray(names)) throw new InvalidInput(`the outputs of evaluate are no array of names, but a ${typeof names}`);
    for (const name of names) {
      if (!this.info.outputs.includes(name)) throw new InvalidInput(`there is no output "${name}"`, { hint: `outputs are ${this.info.outputs.join(', ')}` });
    }
    const batch = this.copied(feeds);
    return this.averaged(average, async () => {
      const run = this.runs.evaluate(Object.keys(batch), names);
      const { [LOSS]: loss, ...found } = await this.send(run, batch, signal);
      return loss ? { loss: loss.data[0], ...found } : found;
    });
  }

  /** Steps over a set of data, several times (fit.js). @param {unknown} dataset @param {object} [options] */
  async fit(dataset, options) {
    return fit(this, dataset, options);
  }

  /** Tells the schedule `plateau` a value; returns the rate of the next step. @param {number} value */
  async observe(value) {
    if (typeof value !== 'number') throw new InvalidInput(`observe was called with ${value}`, { hint: 'a number, such as a loss' });
    return this.inTurn(async () => this.runs.observe(value));
  }

  /** Makes a run and those that follow from it. @param {StepRun} run @param {Feeds} feeds @param {AbortSignal | null} [signal] @returns {Promise<StepResult>} */
  async perform(run, feeds, signal) {
    const results = await this.send(run, feeds, signal);
    const [name] = run.outputs;
    if (name === RESULT) this.stepOutputs = Object.fromEntries(Object.entries(this.info.stepOutputs).map(([output, own]) => [output, results[own]]));
    const { result, following } = this.ended(run, [...results[name].data]);
    return following ? this.perform(following, {}, signal) : { ...result };
  }

  /** What a run did, of which listeners hear. @param {StepRun} run @param {number[]} values its result */
  ended(run, values) {
    const outcome = this.runs.ended(run, values);
    const { result, event, batch, warning } = outcome;
    if (warning) warn(warning, this.handler.logOptions);
    this.handler.watch.tell(event, { batch, ...result });
    return outcome;
  }

  /** The outputs of a run. @param {StepRun} run @param {Feeds} feeds @param {AbortSignal | null} [signal] */
  async send(run, feeds, signal) {
    const fetches = Object.fromEntries(run.outputs.map((name) => [name, null]));
    const settings = signal ? this.parts.runOptions({ signal }) : null;
    const given = this.feeds(run, feeds);
    return this.handler.watch.during((counted) => this.handler.run(given, fetches, settings, counted)).catch((error) => {
      throw this.withPlace(error, given);
    });
  }

  /** The error that a failed run throws: for a label that is no class, with its place in the batch. @param {unknown} error @param {Feeds} feeds */
  withPlace(error, feeds) {
    if (!(error instanceof ExecutionError)) return error;
    for (const name of Object.keys(this.info.targets)) {
      const { type, dims, data } = feeds[name] ?? {};
      const hint = type === 'int64' && data ? labelPlace(error.node, error.detail, name, dims, data) : '';
      if (hint) return withHint(error, hint);
    }
    return error;
  }

  /** Feeds that the caller cannot change while a call waits for its turn. @param {Feeds} feeds @returns {Feeds} */
  copied(feeds) {
    if (typeof feeds !== 'object' || feeds === null) throw new InvalidInput('feeds must be an object of tensors by name');
    return this.parts.snapshot(checkGiven(feeds));
  }

  /** @param {StepRun} run @param {Feeds} feeds @returns {Feeds} */
  feeds({ numbers, applies }, feeds) {
    const { Tensor } = this.parts;
    /** @type {Feeds} */
    const found = { ...feeds, [NUMBERS]: new Tensor('float32', Float32Array.from(numbers), [numbers.length]) };
    if (this.info.accumulates) found[APPLY] = new Tensor('float32', new Float32Array(applies), [applies]);
    for (const [name, type] of Object.entries(this.info.targets)) if (feeds[name]) found[name] = fitted(feeds[name], type);
    const known = this.handler.inputs.filter(({ name, shape }) => shape?.length === found[name]?.dims?.length);
    for (const [dim, names] of differingDims(known, found)) {
      if (!names.some((name) => Object.hasOwn(this.info.targets, name))) continue;
      throw new InvalidInput(`dims named "${dim}" have different sizes in the inputs ${names.map((name) => `'${name}'`).join(', ')}`);
    }
    return found;
  }
}

/** @param {number | null} [rate] of learning @returns {number | null} null: the schedule's. Errors: InvalidInput */
function checkedRate(rate = null) {
  if (rate !== null && !(Number.isFinite(rate) && rate >= 0)) throw new InvalidInput(`rate cannot be ${rate}`, { hint: 'a number from 0 on' });
  return rate;
}

/** An option as JSON: null is absent, bytes such as the graph of a loss are base64. @param {string} _ @param {any} value */
function plainValue(_, value) {
  if (value === null) return undefined;
  if (!(value instanceof ArrayBuffer || ArrayBuffer.isView(value))) return value;
  const bytes = value instanceof ArrayBuffer ? new Uint8Array(value) : new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  return { base64: btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join('')) };
}
