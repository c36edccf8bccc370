// A decoder's session with the keys and values of the tokens that it has read.

import { Declared } from '../runtime/batching.js';
import { DecoderLayout, emptyDims, kept } from '../runtime/generation.js';
import { samplingFeeds } from '../runtime/writing.js';
import { emptyData, partsOf } from './parts.js';

/** @typedef {import('./parts.js').Session} Session */
/** @typedef {import('../runtime/generation.js').Cache} Cache */
/** @typedef {import('../runtime/generation.js').Made} Made */
/** @typedef {import('../runtime/writing.js').Sampling} Sampling */
/** @typedef {import('./parts.js').Tensor} Tensor */

/** Arrays of numbers, by element type. @type {Record<string, (values: readonly number[]) => import('../common/protocol.js').NumericData>} */
const ARRAYS = {
  int64: (values) => BigInt64Array.from(values, BigInt),
  int32: (values) => Int32Array.from(values),
  float32: (values) => Float32Array.from(values),
  float64: (values) => Float64Array.from(values),
  float16: (values) => Uint16Array.from(values, (bit) => bit && 0x3c00), // of masks; caches are empty
  bool: (values) => Uint8Array.from(values, Number),
};

/** @param {{ name: string, isTensor?: boolean, shape?: readonly (number | string)[] }} metadata */
const declared = ({ name, isTensor, shape }) => new Declared(name, isTensor && shape ? [...shape] : null);

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
    /** @type {Record<string, string>} */
    this.types = Object.fromEntries(session.inputMetadata.map(({ name, type }) => [name, type]));
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
   * The tokens that follow each of the last tokens. Only tokens that are not cached are computed.
   * @param {import('../runtime/writing.js').Request} request @param {Sampling} how @param {AbortSignal} [signal] @returns {Promise<number[]>}
   */
  async sample(request, how, signal) {
    const { tokens, count } = request;
    const keep = kept(this.cached, tokens, count);
    if (keep < this.cached.length || !Object.keys(this.pasts).length) await this.keep(keep);
    const found = await this.run(samplingFeeds(this.layout, request, keep, how), signal);
    this.cached = tokens;
    return found.slice(-count);
  }

  /**
   * The sampled tokens (N, positions), flat. The caches become those that the model returns.
   * @param {readonly Made[]} made @param {AbortSignal} [signal] @returns {Promise<number[]>}
   */
  async run(made, signal) {
    const { caches } = this.layout;
    const feeds = Object.fromEntries(made.map(({ name, dims, values }) => [name, this.tensor(name, dims, values)]));
    const names = ['token', ...caches.map(({ present }) => present)];
    const results = await this.session.run({ ...this.given, ...feeds, ...this.pasts }, names, signal ? { signal } : {});
    const keeps = (/** @type {Cache} */ { past, axis, ofEncoder }) => ofEncoder && this.pasts[past].dims[axis];
    this.replace(Object.fromEntries(caches.map((cache) => [cache.past, keeps(cache) ? this.pasts[cache.past] : results[cache.present]])));
    return Array.from(results.token.data, Number);
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
    const data = /** @type {import('./parts.js').Numbers} */ (await tensor.getData());
    const row = dims.slice(axis + 1).reduce((a, b) => a * b, 1);
    const outer = dims.slice(0, axis).reduce((a, b) => a * b, 1);
    const part = /** @type {import('./parts.js').Numbers} */ (emptyData(data, outer * count * row));
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

  /** @param {string} name @param {readonly number[]} dims @param {readonly number[]} values @returns {Tensor} */
  tensor(name, dims, values) {
    const type = this.types[name];
    return new this.parts.Tensor(type, ARRAYS[type](values), dims);
  }
}
