// A decoder's session with the keys and values of the tokens that it has read.

import { fromNumbers } from '../common/elements.js';
import { Declared } from '../runtime/batching.js';
import { DecoderLayout, kept } from '../runtime/generation.js';
import { portions, samplingFeeds } from '../runtime/writing.js';
import { emptyData, partsOf } from './parts.js';

/** @typedef {import('./parts.js').Session} Session */
/** @typedef {import('../runtime/decoder_caches.js').Cache} Cache */
/** @typedef {import('../runtime/generation.js').Made} Made */
/** @typedef {import('../runtime/writing.js').Sampling} Sampling */
/** @typedef {import('./parts.js').Tensor} Tensor */

/** @param {{ name: string, isTensor?: boolean, shape?: readonly (number | string)[] }} metadata */
const declared = ({ name, isTensor, shape }) => new Declared(name, isTensor && shape ? [...shape] : null);

export class Decoder {
  /** Tokens whose keys and values are in `pasts`. @type {number[]} */
  cached = [];
  /** @type {Record<string, Tensor>} */
  pasts = {};
  /** Whether the caches can lose their last tokens alone. */
  shrinks = true;

  /**
   * Throws InvalidInput for a model that cannot generate.
   * @param {Session} session with the option samplePositions
   * @param {Record<string, Tensor>} given inputs besides those of a text, such as an encoder's states
   * @param {unknown} [adapters] of its runs
   */
  constructor(session, given = {}, adapters = undefined) {
    this.session = session;
    this.given = given;
    this.adapters = adapters;
    this.parts = partsOf(session);
    const { InvalidInput } = this.parts;
    /** @type {Record<string, string>} */
    this.types = Object.fromEntries(session.inputMetadata.map(({ name, type }) => [name, type]));
    this.layout = new DecoderLayout(session.inputMetadata.map(declared), session.outputMetadata.map(declared), Object.keys(given));
    const { refused, unknown, fed } = this.layout;
    const hint = 'it must be a decoder with a KV cache, and its session needs the options of TextGenerator.options()';
    if (refused) throw new InvalidInput(`this model cannot generate text: ${refused}`, { hint });
    const strange = Object.keys(given).filter((name) => !(name in this.types));
    if (strange.length) throw new InvalidInput(`the model has no input ${strange.join(', ')}`, { hint: `it has ${session.inputNames.join(', ')}` });
    const constant = { hint: 'inputs: { name: tensor } gives inputs that stay the same in all runs' };
    if (unknown.length) throw new InvalidInput(`the model has the inputs ${unknown.join(', ')}, and no output continues them`, constant);
    const short = fed.filter(({ name }) => this.types[name] === 'uint16').map(({ name }) => name); // the API's type for bfloat16
    if (short.length) throw new InvalidInput(`this model cannot generate text: ${short.join(', ')} has 16-bit elements that are no float16`, { hint });
    this.restart();
  }

  /** Forgets all tokens. */
  restart() {
    this.cached = [];
    this.shrinks = !this.layout.hasStates;
    this.replace({});
  }

  /** How many cached tokens a run for these tokens keeps; at least the last `fresh` are fed. @param {number[]} tokens @param {number} fresh */
  kept(tokens, fresh) {
    return kept(this.cached, tokens, fresh, this.shrinks);
  }

  /**
   * The tokens that follow each of the last tokens. Only tokens that are not cached are computed; all of them if the caches were on a GPU that is lost.
   * @param {import('../runtime/writing.js').Request} request @param {Sampling} how @param {AbortSignal} [signal] @returns {Promise<number[]>}
   */
  async sample(request, how, signal) {
    try {
      return await this.sampleOnce(request, how, signal);
    } catch (error) {
      if (/** @type {{ type?: string }} */ (error)?.type !== 'DeviceLost' || !this.cached.length) throw error;
      this.restart();
      return this.sampleOnce(request, how, signal);
    }
  }

  /** @param {import('../runtime/writing.js').Request} request @param {Sampling} how @param {AbortSignal} [signal] @returns {Promise<number[]>} */
  async sampleOnce(request, how, signal) {
    const keep = this.kept(request.tokens, request.count);
    if (!keep || !Object.keys(this.pasts).length) this.start(1);
    else if (keep < this.cached.length) await this.keep(keep);
    /** @type {number[]} */
    let found = [];
    for (const part of portions(this.layout, request, keep)) {
      found = await this.run(samplingFeeds(this.layout, part, this.cached.length, how), signal);
      this.cached = part.tokens;
      // A cache that keeps the last positions alone has fewer than there are tokens.
      this.shrinks &&= this.layout.caches.every(({ past, axis, ofEncoder }) => ofEncoder || this.pasts[past].dims[axis] === part.tokens.length);
    }
    return found.slice(-request.count);
  }

  /**
   * The sampled tokens (N, positions), flat. The caches become those that the model returns.
   * @param {readonly Made[]} made @param {AbortSignal} [signal] @returns {Promise<number[]>}
   */
  async run(made, signal) {
    const { caches } = this.layout;
    const feeds = Object.fromEntries(made.map(({ name, dims, values }) => [name, this.tensor(name, dims, values)]));
    const names = ['token', ...caches.map(({ present }) => present)];
    const results = await this.session.run({ ...this.given, ...feeds, ...this.pasts }, names, { ...signal && { signal }, ...this.adapters ? { adapters: this.adapters } : {} });
    const keeps = (/** @type {Cache} */ { past, axis, ofEncoder }) => ofEncoder && this.pasts[past].dims[axis];
    this.replace(Object.fromEntries(caches.map((cache) => [cache.past, keeps(cache) ? this.pasts[cache.past] : results[cache.present]])));
    return Array.from(await results.token.getData(true), Number); // it may be on the GPU
  }

  /** Keeps the keys and values of the first tokens. @param {number} count */
  async keep(count) {
    this.cached = this.cached.slice(0, count);
    const { caches } = this.layout;
    const found = await Promise.all(caches.map((cache) => this.first(this.pasts[cache.past], count, cache)));
    this.replace(Object.fromEntries(caches.map(({ past }, n) => [past, found[n]])));
  }

  /** Empty caches, and states of zeros, unless the caller gives others. @param {number} batch */
  start(batch) {
    this.restart();
    const empty = (/** @type {string} */ name, /** @type {number[]} */ dims) => this.tensor(name, dims, new Array(dims.reduce((a, b) => a * b, 1)).fill(0));
    this.replace(Object.fromEntries(this.layout.caches.map((cache) => [cache.past, this.given[cache.past] ?? empty(cache.past, cache.sizes(batch))])));
  }

  /** The first positions of a cache, in the worker if they are there. @param {Tensor} tensor @param {number} count @param {Cache} cache */
  async first(tensor, count, { axis, ofEncoder }) {
    if (ofEncoder) return tensor;
    const there = tensor.first?.(count, axis);
    if (there) return there;
    const { type, dims } = tensor;
    const data = /** @type {import('./parts.js').Numbers} */ (await tensor.getData());
    const row = dims.slice(axis + 1).reduce((a, b) => a * b, 1);
    const outer = dims.slice(0, axis).reduce((a, b) => a * b, 1);
    const part = /** @type {import('./parts.js').Numbers} */ (emptyData(data, outer * count * row));
    for (let n = 0; n < outer; n++) part.set(data.subarray(n * dims[axis] * row, (n * dims[axis] + count) * row), n * count * row);
    return new this.parts.Tensor(type, part, dims.map((dim, n) => (n === axis ? count : dim)));
  }

  /** @param {Record<string, Tensor>} pasts */
  replace(pasts) {
    const stay = [...Object.values(pasts), ...Object.values(this.given)];
    const gone = Object.values(this.pasts).filter((tensor) => tensor.location === 'gpu-buffer' && !stay.includes(tensor));
    this.pasts = pasts;
    for (const tensor of gone) tensor.dispose();
  }

  /** @param {string} name @param {readonly number[]} dims @param {readonly number[]} values @returns {Tensor} */
  tensor(name, dims, values) {
    const type = this.types[name];
    const data = type === 'float16' ? Uint16Array.from(values, (bit) => bit && 0x3c00) : fromNumbers([...values], type); // halves of masks and zeros
    return new this.parts.Tensor(type, data, dims);
  }
}
