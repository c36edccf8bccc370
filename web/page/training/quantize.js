// `ort.quantize` and `ort.quantizeStatic`: fewer bits for a model. Python in the worker decides which runs it needs
// (pyruntime/quantization/steps.py); sessions of the page make them.

import { viewOf } from '../../common/elements.js';
import { InvalidInput, Terminated } from '../../common/errors.js';
import { attach } from '../engine/client.js';

/** @import { QuantiseMeasure, QuantiseParams, QuantiseRun, QuantiseStep } from '../../common/protocol.js' */
/** @import { PageParts } from './session_weights.js' */
/** Part of a tensor. @typedef {{ type: string, dims: readonly number[], data: Float32Array, getData?(release: boolean): Promise<Float32Array> }} Floats */
/** Tensors by name. @typedef {Record<string, Floats>} Feeds */
/** Part of a session. @typedef {{ run(feeds: Feeds, options: { signal?: AbortSignal }): Promise<Feeds>, release(): Promise<void> }} Session */

/** The options besides those of a session, by form: names in Python. @type {Record<string, Record<string, string>>} */
const NAMES = {
  weights: { bits: 'bits', maxError: 'max_error', keep: 'keep', smallest: 'smallest', blockSize: 'block_size', accuracyLevel: 'accuracy_level' },
  static: { calibration: 'calibration', percentile: 'percentile', keep: 'keep', trainable: 'trainable' },
};
const CHUNK = 1 << 24; // bytes of a file that cross at once

/** A result: a model's file. @typedef {Promise<{ model: Uint8Array, report: object }>} Quantised */
/** @typedef {Iterable<Feeds> | AsyncIterable<Feeds>} Samples */
/** @typedef {{ signal?: AbortSignal, [option: string]: unknown }} Options */

/** @param {PageParts} parts @param {unknown} model @param {{ samples?: Samples } & Options | null} [given] options @returns {Quantised} */
export const quantize = (parts, model, given) => {
  const { samples, ...options } = given ?? {};
  return quantised(parts, 'weights', model, samples ?? [], options);
};

/** @param {PageParts} parts @param {unknown} model @param {Samples} samples @param {Options | null} [options] @returns {Quantised} */
export const quantizeStatic = (parts, model, samples, options) => quantised(parts, 'static', model, samples, options ?? {});

/** @param {PageParts} parts @param {'weights' | 'static'} form @param {unknown} model @param {Samples} samples @param {Options} options @returns {Quantised} */
async function quantised(parts, form, model, samples, options) {
  const names = NAMES[form];
  const unknown = Object.keys(options).find((name) => (options[name] ?? null) !== null && !Object.hasOwn(names, name) && !Object.hasOwn(parts.SESSION, name));
  if (unknown) throw new InvalidInput(`there is no option "${unknown}"`, { hint: `besides those of a session there are ${Object.keys(names).join(', ')}` });
  const feeds = await collected(samples);
  const ofSessions = Object.fromEntries(Object.entries(options).filter(([name]) => !Object.hasOwn(names, name)));
  const own = Object.entries(names).filter(([name]) => (options[name] ?? null) !== null);
  const quantising = { ...Object.fromEntries(own.map(([name, python]) => [python, options[name]])), form, has_samples: feeds.length > 0 };
  const number = await parts.ask('quantise', 'the quantisation', model, ofSessions, { how: 'open', quantising }, end);
  const { externalData, ...others } = ofSessions; // files that sessions open have all weights
  const work = new Quantisation(number, parts, feeds, others);
  try {
    return await work.result();
  } finally {
    await work.end();
  }
}

/** Frees a quantisation in the worker. @param {number} number */
const end = (number) => attach().call('quantise', { how: 'end', number }).catch(() => {}); // the worker may have ended

/** @param {Samples} samples @returns {Promise<Feeds[]>} */
async function collected(samples) {
  if (!(Symbol.iterator in Object(samples)) && !(Symbol.asyncIterator in Object(samples))) {
    throw new InvalidInput('samples must be an array of feeds, or an iterator of them');
  }
  const found = [];
  for await (const feeds of samples) found.push(feeds);
  return found;
}

/** One quantisation, and the sessions that it runs. */
class Quantisation {
  /** Sessions of small models, by their bytes. @type {Map<string, Promise<Session>>} */
  small = new Map();
  /** Outputs of the model for each sample. @type {Feeds[]} */
  expected = [];

  /** @param {number} number @param {PageParts} parts @param {Feeds[]} samples @param {Options} options of sessions */
  constructor(number, parts, samples, options) {
    this.number = number;
    this.parts = parts;
    this.samples = samples;
    this.options = options;
  }

  /** The result of a call, unless the signal is aborted. @param {QuantiseParams} params @returns {Promise<any>} */
  async ask(params) {
    const { signal } = this.options;
    const watch = signal && ((/** @type {() => void} */ stop) => {
      signal.addEventListener('abort', stop, { once: true });
      return () => signal.removeEventListener('abort', stop);
    });
    const check = () => {
      if (signal?.aborted) throw new Terminated('the quantisation was stopped: its signal is aborted', { cause: signal.reason });
    };
    check();
    const found = await attach().call('quantise', params, { watch });
    check();
    return found;
  }

  /** Runs all steps. @returns {Promise<{ model: Uint8Array, report: object }>} */
  async result() {
    /** @type {unknown} */
    let answer = null;
    for (;;) {
      /** @type {QuantiseStep} */
      const step = await this.ask({ how: 'next', number: this.number, answer });
      if (step.kind === 'done') return { model: await this.file(step.size), report: step.report };
      answer = step.kind === 'run' ? await this.run(step) : await this.measure(step);
    }
  }

  /** Bytes of the outputs of a small model. @param {QuantiseRun} step */
  async run({ model, feeds }) {
    const given = Object.entries(feeds).map(([name, [dtype, dims, data]]) => [name, new this.parts.Tensor(dtype, viewOf(data, dtype), dims)]);
    return this.bytes(model, Object.fromEntries(given));
  }

  /** @param {Uint8Array} model @param {Feeds} feeds */
  async bytes(model, feeds) {
    const key = model.join();
    if (!this.small.has(key)) this.small.set(key, this.parts.InferenceSession.create(model, { executionProviders: ['wasm'] }));
    const session = await /** @type {Promise<Session>} */ (this.small.get(key));
    const found = await session.run(feeds, { signal: this.options.signal });
    return Object.fromEntries(Object.entries(found).map(([name, { data: { buffer, byteOffset, byteLength } }]) => (
      [name, new Uint8Array(buffer, byteOffset, byteLength)])));
  }

  /** The answer for each sample. @param {QuantiseMeasure} step @returns {Promise<object[]>} */
  async measure({ kind, size, models, most }) {
    const { signal } = this.options;
    const parts = [];
    for await (const part of this.chunks(size)) parts.push(part);
    /** @type {Session} */
    const session = await this.parts.InferenceSession.create(new Blob(parts), this.options);
    /** @type {object[]} */
    const answers = [];
    try {
      for (const [n, feeds] of this.samples.entries()) {
        const found = await onCpu(await session.run(feeds, { signal }));
        if (kind === 'expected') this.expected.push(found);
        else if (kind === 'each') answers.push(await this.each(models, most, this.expected[n], found));
        else answers.push(Object.fromEntries(Object.entries(found).map(([name, { data }]) => [name, data[0]])));
      }
    } finally {
      await session.release();
    }
    return answers;
  }

  /** What small models say of each output. @param {Record<string, Uint8Array>} models by type @param {Record<string, number>} most @param {Feeds} expected @param {Feeds} found */
  async each(models, most, expected, found) {
    /** @type {Record<string, Record<string, Uint8Array> | null>} */
    const answers = {};
    for (const [name, { type, dims, data }] of Object.entries(found)) {
      if (!models[type]) continue;
      const vector = (/** @type {Float32Array} */ values) => new this.parts.Tensor(type, values, [values.length]);
      answers[name] = null;
      /** @type {Feeds} */
      const feeds = { found: vector(data) };
      if (name in most) feeds.most = vector(Float32Array.of(most[name]));
      else if (dims.join() === expected[name].dims.join()) feeds.expected = vector(expected[name].data);
      else continue;
      answers[name] = await this.bytes(models[type], feeds);
    }
    return answers;
  }

  /** Parts of the file of the last step. @param {number} size @returns {AsyncGenerator<Uint8Array<ArrayBuffer>>} */
  async* chunks(size) {
    for (let offset = 0; offset < size; offset += CHUNK) {
      yield await this.ask({ how: 'read', number: this.number, offset, size: Math.min(CHUNK, size - offset) });
    }
  }

  /** @param {number} size */
  async file(size) {
    const whole = new Uint8Array(size);
    let at = 0;
    for await (const part of this.chunks(size)) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }

  /** Releases everything. */
  async end() {
    for (const session of this.small.values()) await session.then((opened) => opened.release(), () => {});
    await end(this.number);
  }
}

/** Outputs whose data is on the CPU; those that are no tensors are left out. @param {Feeds} outputs @returns {Promise<Feeds>} */
async function onCpu(outputs) {
  /** @type {Feeds} */
  const found = {};
  for (const [name, tensor] of Object.entries(outputs)) {
    if (tensor?.getData) found[name] = { type: tensor.type, dims: tensor.dims, data: await tensor.getData(true) };
  }
  return found;
}
