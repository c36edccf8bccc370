// A decoder's session with the keys and values of the tokens that it has read. Twin of pyruntime/api/decoder.py.

import { Declared } from '../runtime/batching.js';
import { DecoderLayout, emptyDims, kept, penalised, textInputs } from '../runtime/generation.js';
import { partsOf } from './parts.js';

/** @typedef {import('./parts.js').Session} Session */
/** @typedef {import('../runtime/generation.js').Cache} Cache */
/** @typedef {{ temperature: number, topK: number, topP: number, repetitionPenalty: number }} Sampling */
/** @typedef {{ type: string, dims: readonly number[], data: any, location: string, dispose: () => void, getData: () => Promise<any>, first?: (count: number, axis: number) => any }} Tensor */
/** @typedef {{ dims: readonly number[], values: readonly (number | boolean)[] }} Feed */

const ARRAYS = {
  int64: (/** @type {readonly any[]} */ values) => BigInt64Array.from(values, BigInt),
  int32: (/** @type {readonly any[]} */ values) => Int32Array.from(values),
  float32: (/** @type {readonly any[]} */ values) => Float32Array.from(values),
  float64: (/** @type {readonly any[]} */ values) => Float64Array.from(values),
  float16: (/** @type {readonly any[]} */ values) => Uint16Array.from(values, (bit) => bit && 0x3c00), // of masks; caches are empty
  bool: (/** @type {readonly any[]} */ values) => Uint8Array.from(values, Number),
};

/** @param {{ name: string, isTensor?: boolean, shape?: readonly (number | string)[] }} metadata */
const declared = ({ name, isTensor, shape }) => new Declared(name, isTensor && shape ? [...shape] : null);

/** @param {number} count @param {(n: number) => number} of */
const range = (count, of) => Array.from({ length: count }, (_, n) => of(n));

export class Decoder {
  /** Tokens whose keys and values are in `pasts`. @type {number[]} */
  cached = [];
  /** @type {Record<string, Tensor>} */
  pasts = {};

  /**
   * Throws InvalidInput for a model that cannot generate.
   * @param {Session} session with the option samplePositions
   * @param {Record<string, Tensor>} given inputs besides those of a text, such as an encoder's states
   */
  constructor(session, given = {}) {
    this.session = session;
    this.given = given;
    this.parts = partsOf(session);
    const { InvalidInput } = this.parts;
    /** @type {Record<string, keyof typeof ARRAYS>} */
    this.types = Object.fromEntries(session.inputMetadata.map((/** @type {any} */ { name, type }) => [name, type]));
    this.layout = new DecoderLayout(session.inputMetadata.map(declared), session.outputMetadata.map(declared), Object.keys(given));
    const { refused, unknown } = this.layout;
    const hint = 'it must be a decoder with a KV cache, and its session needs the options of TextGenerator.options()';
    if (refused) throw new InvalidInput(`this model cannot generate text: ${refused}`, { hint });
    const strange = Object.keys(given).filter((name) => !(name in this.types));
    if (strange.length) throw new InvalidInput(`the model has no input ${strange.join(', ')}`, { hint: `it has ${session.inputNames.join(', ')}` });
    if (unknown.length) throw new InvalidInput(`the model has the inputs ${unknown.join(', ')}`, { hint: 'inputs: { name: tensor } gives them' });
  }

  /** Forgets all tokens. */
  restart() {
    this.cached = [];
    this.replace({});
  }

  /**
   * The tokens that follow each of the last `count` of these tokens, chosen by `count` random numbers. Only tokens that are not
   * cached are computed.
   * @param {number[]} tokens @param {number} count @param {Sampling} how @param {readonly number[]} random @param {AbortSignal} [signal]
   * @returns {Promise<number[]>}
   */
  async sample(tokens, count, how, random, signal) {
    const keep = kept(this.cached, tokens, count);
    if (keep < this.cached.length || !Object.keys(this.pasts).length) await this.keep(keep);
    const fresh = tokens.slice(keep);
    const rows = Math.min(this.layout.positions, fresh.length);
    const pairs = how.repetitionPenalty === 1 ? [] : penalised(rows, tokens);
    const feeds = {
      ...this.textFeeds([fresh], [range(tokens.length, () => 1)]),
      ...samplingFeeds(how),
      random: { dims: [1, rows], values: [...new Array(rows - count).fill(0), ...random] },
      repeated: { dims: [pairs.length / 2, 2], values: pairs },
    };
    const found = await this.run(feeds, signal);
    this.cached = [...tokens];
    return [...found.data.subarray(-count)].map(Number);
  }

  /**
   * The inputs for new tokens (N, S) after earlier ones. @param {number[][]} fresh
   * @param {number[][]} mask (N, all tokens): 0 where a row is padded @returns {Record<string, Feed>}
   */
  textFeeds(fresh, mask) {
    return Object.fromEntries(textInputs(this.layout, fresh, mask).map(({ name, dims, values }) => [name, { dims, values }]));
  }

  /** The sampled tokens. The caches become those that the model returns. @param {Record<string, Feed>} feeds @param {AbortSignal} [signal] */
  async run(feeds, signal) {
    const { caches } = this.layout;
    const tensors = Object.entries(feeds).map(([name, { dims, values }]) => [name, this.tensor(name, dims, values)]);
    const names = ['token', ...caches.map(({ present }) => present)];
    const results = await this.session.run({ ...this.given, ...Object.fromEntries(tensors), ...this.pasts }, names, signal ? { signal } : {});
    const keeps = (/** @type {Cache} */ { past, axis, ofEncoder }) => ofEncoder && this.pasts[past].dims[axis];
    this.replace(Object.fromEntries(caches.map((cache) => [cache.past, keeps(cache) ? this.pasts[cache.past] : results[cache.present]])));
    return results.token;
  }

  /** Keeps the keys and values of the first tokens. @param {number} count */
  async keep(count) {
    this.cached = this.cached.slice(0, count);
    if (!Object.keys(this.pasts).length) {
      this.start(1);
      return;
    }
    const { caches } = this.layout;
    const found = await Promise.all(caches.map((cache) => this.first(this.pasts[cache.past], count, cache)));
    this.replace(Object.fromEntries(caches.map(({ past }, n) => [past, found[n]])));
  }

  /** Empty caches. @param {number} batch */
  start(batch) {
    this.cached = [];
    const empty = this.layout.caches.map((cache) => [cache.past, this.tensor(cache.past, emptyDims(cache, batch), [])]);
    this.replace(Object.fromEntries(empty));
  }

  /** The first positions of a cache, in the worker if they are there. @param {Tensor} tensor @param {number} count @param {Cache} cache */
  async first(tensor, count, { axis, ofEncoder }) {
    if (ofEncoder) return tensor;
    const there = tensor.first?.(count, axis);
    if (there) return there;
    const { type, dims } = tensor;
    const data = await tensor.getData();
    const row = dims.slice(axis + 1).reduce((a, b) => a * b, 1);
    const outer = dims.slice(0, axis).reduce((a, b) => a * b, 1);
    const part = new data.constructor(outer * count * row);
    for (let n = 0; n < outer; n++) part.set(data.subarray(n * dims[axis] * row, (n * dims[axis] + count) * row), n * count * row);
    return new this.parts.Tensor(type, part, dims.map((dim, n) => (n === axis ? count : dim)));
  }

  /** @param {Record<string, Tensor>} pasts */
  replace(pasts) {
    const stay = Object.values(pasts);
    const gone = Object.values(this.pasts).filter((tensor) => tensor.location === 'gpu-buffer' && !stay.includes(tensor));
    this.pasts = pasts;
    for (const tensor of gone) tensor.dispose();
  }

  /** @param {string} name @param {readonly number[]} dims @param {readonly (number | boolean)[]} values @returns {Tensor} */
  tensor(name, dims, values) {
    const type = this.types[name];
    return new this.parts.Tensor(type, ARRAYS[type](values), dims);
  }
}

/** @param {Sampling} how @returns {Record<string, Feed>} */
export function samplingFeeds({ temperature, topK, topP, repetitionPenalty }) {
  const scalar = (/** @type {number} */ value) => ({ dims: [], values: [value] });
  return {
    temperature: scalar(temperature),
    top_k: scalar(temperature <= 0 ? 1 : topK), // the likeliest token needs no order of all tokens
    top_p: scalar(topP),
    repetition_penalty: scalar(repetitionPenalty),
  };
}
