// A decoder's session with the keys and values of the tokens that it has read.

import { elementSize, fromNumbers, viewOf } from '../common/elements.js';
import { Declared } from '../runtime/batching.js';
import { DecoderLayout, encoderFeeds, kept } from '../runtime/generation.js';
import { HALVES, PROBED, SavedDecoder, SavedTensor, anotherModel, areNear, checkModel, description, fromHalves } from '../runtime/saved_text.js';
import { MOST, Request, Sampling, beamFeeds, portions, samplingFeeds } from '../runtime/writing.js';
import { copyBlock, emptyData, partsOf } from './parts.js';

/** @typedef {import('./parts.js').Session} Session */
/** @typedef {import('../runtime/decoder_caches.js').Cache} Cache */
/** @typedef {import('../runtime/generation.js').Made} Made */
/** @typedef {import('./parts.js').Tensor} Tensor */
/** What a decoder has read, by the names of its fields.
 * @typedef {Pick<Decoder, 'cached' | 'pasts' | 'shrinks' | 'saved' | 'given'>} Caches */
/** Caches of one text: a row of those of several, of which the last `count` positions are its own.
 * @typedef {{ pasts: Record<string, Tensor>, row: number, count: number }} Row */

/** @param {{ name: string, isTensor?: boolean, shape?: readonly (number | string)[] }} metadata */
const declared = ({ name, isTensor, shape }) => new Declared(name, isTensor && shape ? [...shape] : null);

/** The bytes of a typed array. @param {import('./parts.js').Data} data */
const bytesOf = (data) => {
  const { buffer, byteOffset, byteLength } = /** @type {Uint8Array} */ (/** @type {unknown} */ (data));
  return new Uint8Array(buffer, byteOffset, byteLength);
};

export class Decoder {
  /** Tokens whose keys and values are in `pasts`. @type {number[]} */
  cached = [];
  /** @type {Record<string, Tensor>} */
  pasts = {};
  /** Whether the caches can lose their last tokens alone. */
  shrinks = true;
  /** Caches before the last draft was read, and the number of their tokens. @type {{ count: number, pasts: Record<string, Tensor> }} */
  saved = { count: 0, pasts: {} };
  /** @type {Record<string, Tensor>} */
  given = {};
  /** Of inputs that were given, for beams: `of` is `given`. @type {{ of: unknown, rows: number, tensors: Record<string, Tensor> }} */
  repeats = { of: null, rows: 0, tensors: {} };

  /**
   * Throws InvalidInput for a model that cannot generate.
   * @param {Session} session with the option samplePositions
   * @param {Record<string, Tensor | undefined>} given inputs besides those of a text, such as an encoder's states; their tensors may come later
   * @param {unknown} [adapters] of its runs
   * @param {Record<string, string>} [continued] caches that names do not pair, with the outputs that continue them
   */
  constructor(session, given = {}, adapters = undefined, continued = {}) {
    this.session = session;
    this.names = Object.keys(given);
    this.adapters = adapters;
    this.parts = partsOf(session);
    const { InvalidInput } = this.parts;
    /** @type {Record<string, string>} */
    this.types = Object.fromEntries(session.inputMetadata.map(({ name, type }) => [name, type]));
    const paired = Object.entries(continued).map(([past, present]) => `${past}=${present}`);
    /** The tokens that a text may have by the model's metadata, as of a GGUF file. */
    this.context = Number(session.metadata?.customMetadataMap.context_length) || MOST;
    this.layout = new DecoderLayout(session.inputMetadata.map(declared), session.outputMetadata.map(declared), this.names, paired);
    const { refused, unknown, fed } = this.layout;
    const hint = 'it must be a decoder with a KV cache, and its session needs the options of TextGenerator.options()';
    if (refused) throw new InvalidInput(`this model cannot generate text: ${refused}`, { hint });
    const options = { hint: 'inputs: { name: tensor } gives what stays the same in all runs, caches: { name: output } continues a cache' };
    if (unknown.length) throw new InvalidInput(`the model has the inputs ${unknown.join(', ')}, and names pair no output with them`, options);
    const short = fed.filter(({ name }) => this.types[name] === 'uint16').map(({ name }) => name); // the API's type for bfloat16
    if (short.length) throw new InvalidInput(`this model cannot generate text: ${short.join(', ')} has 16-bit elements that are no float16`, { hint });
    this.give(given);
  }

  /**
   * Takes other inputs besides those of a text, and forgets all tokens. Throws InvalidInput for an input that is not there, or was not given to the constructor.
   * @param {Record<string, Tensor | undefined>} tensors
   */
  give(tensors) {
    const { InvalidInput } = this.parts;
    const missing = Object.keys(tensors).filter((name) => !(name in this.types));
    if (missing.length) throw new InvalidInput(`the model has no input ${missing.join(', ')}`, { hint: `it has ${this.session.inputNames.join(', ')}` });
    const strange = Object.keys(tensors).filter((name) => !this.names.includes(name));
    if (strange.length) throw new InvalidInput(`${strange.join(', ')} is not in the generator's inputs`, { hint: 'give it there, too' });
    this.restart(); // a text that waits has the mapping of before
    this.given = { ...this.given, ...Object.fromEntries(Object.entries(tensors).flatMap(([name, tensor]) => (tensor ? [[name, tensor]] : []))) };
  }

  /** Inputs that have no tensor yet. */
  missing() {
    return this.names.filter((name) => !this.given[name]);
  }

  /** Forgets all tokens. */
  restart() {
    this.cached = [];
    this.shrinks = !this.layout.hasStates;
    this.save(0, {});
    this.replace({});
  }

  /** Keeps the caches of so many tokens, until others are saved. @param {number} count @param {Record<string, Tensor>} pasts */
  save(count, pasts) {
    const before = Object.values(this.saved.pasts);
    this.saved = { count, pasts };
    this.free(before);
  }

  /** The caches, which the decoder does not have any more. @returns {Caches} */
  take() {
    const { cached, pasts, shrinks, saved, given } = this;
    Object.assign(this, { cached: [], pasts: {}, shrinks: !this.layout.hasStates, saved: { count: 0, pasts: {} } });
    return { cached, pasts, shrinks, saved, given };
  }

  /** @param {Caches} caches */
  put(caches) {
    this.restart();
    Object.assign(this, caches);
  }

  /** Forgets cached tokens that do not begin this text. @param {number[]} tokens */
  async trim(tokens) {
    const keep = this.kept(tokens, 0);
    if (!keep) this.restart();
    else if (keep < this.cached.length) await this.keep(keep);
  }

  /** How many cached tokens a run for these tokens keeps; at least the last `fresh` are fed. @param {number[]} tokens @param {number} fresh */
  kept(tokens, fresh) {
    return kept(this.cached, tokens, fresh, this.shrinks, this.saved.count);
  }

  /**
   * The tokens that follow each of the last tokens, or the choices that the request wants. Only tokens that are not cached are computed; all of them if the
   * caches were on a GPU that is lost.
   * @param {Request} request @param {Sampling} how @param {AbortSignal} [signal] @returns {Promise<number[]>}
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

  /** @param {Request} request @param {Sampling} how @param {AbortSignal} [signal] @returns {Promise<number[]>} */
  async sampleOnce(request, how, signal) {
    if (request.beams.length) return this.continueBeams(request, how, signal);
    const keep = this.kept(request.tokens, request.count);
    if (!keep || !Object.keys(this.pasts).length) this.start(Math.max(1, this.layout.rows));
    else if (keep < this.cached.length) await this.keep(keep);
    if (!this.shrinks && this.cached.length <= request.certain && request.certain < request.tokens.length) this.save(this.cached.length, { ...this.pasts });
    /** @type {number[]} */
    let found = [];
    for (const part of portions(this.layout, request, keep)) {
      found = await this.run(samplingFeeds(this.layout, part, this.cached.length, how), signal, request.choices && 1);
      this.cached = part.tokens;
      this.shrinks &&= this.isWhole();
    }
    return request.choices ? found : found.slice(-request.count);
  }

  /** A run for all beams of a text, whose caches have a row for each until `narrow`. @param {Request} request @param {Sampling} how @param {AbortSignal} [signal] */
  async continueBeams(request, how, signal) {
    const { beams, sources, tokens } = request;
    if (sources.length) this.replace(await this.stacked(sources.map((row) => ({ pasts: this.pasts, row, count: tokens.length })), true));
    this.cached = []; // no other text can go on with these caches
    return this.run(beamFeeds(this.layout, request, how), signal, beams.length, await this.repeated(beams.length));
  }

  /** The inputs of one text that have a row for each row of a run, with so many equal rows. @param {number} rows */
  async repeated(rows) {
    const { given, repeats } = this;
    if (repeats.of !== given || repeats.rows !== rows) {
      const row = { pasts: given, row: 0, count: 0 };
      const names = this.layout.repeated.filter((name) => given[name]);
      const found = await Promise.all(names.map((past) => this.joined({ past, batch: 0, axis: -1 }, new Array(rows).fill(row))));
      this.repeats = { of: given, rows, tensors: Object.fromEntries(names.map((name, n) => [name, found[n]])) };
    }
    return this.repeats.tensors;
  }

  /** Keeps the caches of the first beam, which has these tokens. @param {number[]} tokens */
  async narrow(tokens) {
    this.restore(tokens, await this.stacked([{ pasts: this.pasts, row: 0, count: tokens.length }]));
  }

  /**
   * The sampled tokens (N, positions), flat; with beams the likeliest tokens (beams, K), then their log probabilities. The caches become those that the
   * model returns. inputs: in place of some that were given
   * @param {readonly Made[]} made @param {AbortSignal} [signal] @param {Record<string, Tensor>} [inputs] @returns {Promise<number[]>}
   */
  async run(made, signal, beams = 0, inputs = {}) {
    const { caches } = this.layout;
    const feeds = Object.fromEntries(made.map(({ name, dims, values }) => [name, this.tensor(name, dims, values)]));
    const wanted = beams ? ['best_tokens', 'best_scores'] : ['token'];
    const names = [...wanted, ...caches.map(({ present }) => present)];
    const results = await this.session.run({ ...this.given, ...inputs, ...feeds, ...this.pasts }, names, { ...signal && { signal }, ...this.adapters ? { adapters: this.adapters } : {} });
    const keeps = (/** @type {Cache} */ { past, axis, ofEncoder }) => ofEncoder && this.pasts[past].dims[axis];
    this.replace(Object.fromEntries(caches.map((cache) => [cache.past, keeps(cache) ? this.pasts[cache.past] : results[cache.present]])));
    const rows = async (/** @type {Tensor} */ tensor) => Array.from(await tensor.getData(true), Number).slice(-beams * tensor.size / tensor.dims[0]); // it may be on the GPU
    return (await Promise.all(wanted.map((name) => rows(results[name])))).flat();
  }

  /**
   * `run` of several texts with caches of their own, which become those that the model returns.
   * @param {readonly Made[]} made @param {{ pasts: Record<string, Tensor> }} shared
   */
  async runShared(made, shared) {
    const own = this.take();
    this.pasts = shared.pasts;
    try {
      return await this.run(made);
    } finally {
      shared.pasts = this.pasts;
      Object.assign(this, own);
    }
  }

  /**
   * Copies of the caches of several texts, a row for each. areBeams: all rows are of the same caches, and have the same encoder's states
   * @param {Row[]} rows @param {boolean} [areBeams]
   */
  async stacked(rows, areBeams) {
    const isKept = (/** @type {Cache} */ { past, batch, ofEncoder }) => areBeams && ofEncoder && rows[0].pasts[past].dims[batch] === rows.length;
    /** @type {Record<string, Tensor>} */
    const found = {};
    for (const cache of this.layout.caches) found[cache.past] = isKept(cache) ? rows[0].pasts[cache.past] : await this.joined(cache, rows);
    return found;
  }

  /** One tensor of rows of others. Shorter rows begin with zeros. @param {Pick<Cache, 'past' | 'batch' | 'axis'> & { ofEncoder?: boolean }} cache @param {Row[]} rows */
  async joined({ past, batch, axis, ofEncoder }, rows) {
    const tensors = [...new Set(rows.map(({ pasts }) => pasts[past]))];
    const read = await Promise.all(tensors.map((tensor) => tensor.getData()));
    const parts = rows.map(({ pasts, row, count }) => {
      const { dims } = pasts[past];
      const size = dims.map((dim, n) => (n === batch ? 1 : n === axis && !ofEncoder ? Math.min(dim, count) : dim));
      const at = dims.map((dim, n) => (n === batch ? row : dim - size[n]));
      return { data: /** @type {import('./parts.js').Numbers} */ (read[tensors.indexOf(pasts[past])]), dims, at, size };
    });
    const longest = (/** @type {number} */ n) => Math.max(...parts.map(({ size }) => size[n]));
    const dims = parts[0].dims.map((_, n) => (n === batch ? parts.length : longest(n)));
    const data = /** @type {import('./parts.js').Numbers} */ (emptyData(parts[0].data, dims.reduce((a, b) => a * b, 1)));
    for (const [row, part] of parts.entries()) copyBlock(part, { data, dims, at: dims.map((dim, n) => (n === batch ? row : dim - part.size[n])) }, part.size);
    return new this.parts.Tensor(tensors[0].type, data, dims);
  }

  /** What `restore` needs: the tokens, and the caches' bytes, with those of the first tokens alone. */
  async pack() {
    const probe = this.cached.length ? await this.probed(this.cached) : {};
    /** @type {SavedTensor[]} */
    const tensors = [];
    /** @type {Uint8Array[]} */
    const parts = [];
    for (const values of this.cached.length ? [this.pasts, probe] : []) {
      for (const { past } of this.layout.caches) {
        parts.push(bytesOf(await values[past].getData()));
        tensors.push(new SavedTensor(past, this.types[past], [...values[past].dims], 0, parts[parts.length - 1].length, values === probe));
      }
    }
    this.free(Object.values(probe));
    return { saved: new SavedDecoder(this.description(), this.cached, tensors), parts };
  }

  /**
   * Saved caches, for `restore`. Throws InvalidInput for those of another model.
   * @param {SavedDecoder} saved @param {Uint8Array} body the bytes to which they refer
   */
  async read(saved, body) {
    const { model, cached, tensors } = saved;
    const sizes = Object.fromEntries(this.layout.caches.map(({ past }) => [past, elementSize(this.types[past])]));
    checkModel(saved, this.description(), this.layout, this.types, sizes);
    const own = cached.length ? await this.probed(cached) : {};
    /** @type {Record<string, Tensor>} */
    const found = {};
    for (const { name, dtype, dims, first, last, probe } of tensors) {
      const data = /** @type {import('./parts.js').Numbers} */ (viewOf(body.slice(first, last), dtype));
      if (!probe) found[name] = new this.parts.Tensor(dtype, data, dims);
      else if (!areNear(this.numbers(name, data), this.numbers(name, await own[name].getData()))) throw anotherModel(model, this.description());
    }
    this.free(Object.values(own));
    return found;
  }

  /** Goes on with these tokens and their caches. @param {number[]} cached @param {Record<string, Tensor>} pasts */
  restore(cached, pasts) {
    this.restart();
    this.cached = cached;
    this.replace(pasts);
    this.shrinks &&= !cached.length || this.isWhole();
  }

  description() {
    const { graphName = '', producerName = '' } = this.session.metadata ?? {};
    return description(graphName, producerName, this.layout);
  }

  /** The caches of the first of these tokens alone. Those of before stay. @param {number[]} tokens */
  async probed(tokens) {
    const { cached, pasts, shrinks, saved } = this;
    Object.assign(this, { pasts: {}, saved: { count: 0, pasts: {} } });
    this.restart();
    try {
      const first = tokens.slice(0, PROBED);
      await this.sampleOnce(new Request(false, first, first.length, 1, [0]), new Sampling());
      return this.pasts;
    } finally {
      Object.assign(this, { cached, pasts, shrinks, saved });
    }
  }

  /** @param {string} name of a cache @param {import('./parts.js').Data} data @returns {number[]} */
  numbers(name, data) {
    const form = HALVES[this.types[name]];
    return form ? fromHalves([...viewOf(bytesOf(data), 'uint16')].map(Number), form) : Array.from(data, Number);
  }

  /** Whether the caches have all tokens: one that keeps the last positions alone has fewer. */
  isWhole() {
    return this.layout.caches.every(({ past, axis, ofEncoder }) => ofEncoder || this.pasts[past].dims[axis] === this.cached.length);
  }

  /** Keeps the keys and values of the first tokens, or the caches that were saved after so many. @param {number} count */
  async keep(count) {
    this.cached = this.cached.slice(0, count);
    if (!this.shrinks) {
      this.replace({ ...this.saved.pasts });
      return;
    }
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
    const size = dims.map((dim, n) => (n === axis ? count : dim));
    const at = dims.map(() => 0);
    const part = /** @type {import('./parts.js').Numbers} */ (emptyData(data, size.reduce((a, b) => a * b, 1)));
    copyBlock({ data, dims, at }, { data: part, dims: size, at }, size);
    return new this.parts.Tensor(type, part, size);
  }

  /** @param {Record<string, Tensor>} pasts */
  replace(pasts) {
    const before = Object.values(this.pasts);
    this.pasts = pasts;
    this.free(before);
  }

  /** Frees tensors on the GPU that nothing here uses any more. @param {Tensor[]} tensors */
  free(tensors) {
    const stay = [this.pasts, this.saved.pasts, this.given].flatMap((one) => Object.values(one));
    for (const tensor of new Set(tensors)) if (tensor.location === 'gpu-buffer' && !stay.includes(tensor)) tensor.dispose();
  }

  /** @param {string} name @param {readonly number[]} dims @param {readonly number[]} values @returns {Tensor} */
  tensor(name, dims, values) {
    const type = this.types[name];
    const data = type === 'float16' ? Uint16Array.from(values, (bit) => bit && 0x3c00) : fromNumbers([...values], type); // halves of masks and zeros
    return new this.parts.Tensor(type, data, dims);
  }
}

/** A session whose outputs are inputs of a decoder, computed once for each text. */
export class Encoder {
  /** Throws InvalidInput if no output is an input of the decoder. @param {Session} session @param {Session} decoder */
  constructor(session, decoder) {
    this.session = session;
    this.parts = partsOf(session);
    this.feeds = encoderFeeds([...session.inputNames], session.outputMetadata.map(declared), [...decoder.inputNames]);
    /** The decoder's inputs. */
    this.given = this.feeds.map(({ feed }) => feed);
    if (this.feeds.every(({ isMask }) => isMask)) {
      throw new this.parts.InvalidInput(`no output of the encoder is an input of the decoder: ${session.outputNames.join(', ')}`, { hint: 'give it as inputs' });
    }
  }

  /**
   * The decoder's inputs: outputs of a run, and those of the tensors that the encoder does not read.
   * @param {Record<string, Tensor>} tensors @returns {Promise<Record<string, Tensor>>}
   */
  async run(tensors) {
    const isOwn = (/** @type {[string, Tensor]} */ [name]) => this.session.inputNames.includes(name);
    const own = Object.fromEntries(Object.entries(tensors).filter(isOwn));
    const others = Object.fromEntries(Object.entries(tensors).filter((entry) => !isOwn(entry)));
    if (!Object.keys(own).length) return others;
    const names = this.feeds.filter(({ isMask }) => !isMask).map(({ output }) => output);
    const made = await this.session.run(own, names, {});
    const dims = made[names[0]].dims.slice(0, 2);
    for (const { feed, output, isMask } of this.feeds) {
      others[feed] = isMask ? own[output] ?? new this.parts.Tensor('int64', new BigInt64Array(dims[0] * dims[1]).fill(1n), dims) : made[output];
    }
    return others;
  }
}
