// A language model that learns a text with adapters beside its weights, and writes: both in one training session.

import * as ort from 'pyruntime';
import { readTokenizer } from 'pyruntime/extras';
import { drawn } from '../speak/writer.js';

const HELD_OUT = 0.1; // fraction of the text, at its end
const TESTS = 4; // pieces of the part that is held out
const SHORTEST = 8; // tokens of a piece
export const LORA = { rank: 8, alpha: 16, targets: ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] };

/** @param {number[]} numbers */
const int64 = (numbers) => new ort.Tensor('int64', BigInt64Array.from(numbers, BigInt), [1, numbers.length]);
/** @param {number} count @param {number} first */
const places = (count, first) => Array.from({ length: count }, (_, n) => first + n);

export class Student {
  /** @param {string} model address of a GGUF file @param {(progress: ort.Progress) => void} onProgress */
  static async open(model, onProgress) {
    const options = { loss: { crossEntropy: 'logits' }, optimizer: { adamW: { rate: 0.0005, decay: 0 } }, schedule: { constant: { warmup: 5 } }, clip: 1, lora: LORA, cache: true, onProgress };
    const [session, tokenizer] = await Promise.all([ort.TrainingSession.create(model, options), readTokenizer(model)]);
    return new Student(session, tokenizer, await session.state());
  }

  /** @param {ort.TrainingSession} session @param {import('pyruntime/extras').TextTokenizer} tokenizer @param {Uint8Array} start a checkpoint */
  constructor(session, tokenizer, start) {
    this.session = session;
    this.tokenizer = tokenizer;
    this.start = start;
    const sizes = session.inputs().filter(({ name }) => name.startsWith('past_key_values')).map(({ name, shape }) => ({ name, dims: (shape ?? []).map((dim) => (dim === 'batch' ? 1 : Number(dim) || 0)) }));
    /** Caches without tokens. @type {Record<string, ort.Tensor>} */
    this.empty = Object.fromEntries(sizes.map(({ name, dims }) => [name, new ort.Tensor('float32', new Float32Array(0), dims)]));
    /** The text as numbers of tokens. @type {number[]} */
    this.numbers = [];
    this.length = 64;
  }

  /** @param {string} text @returns {number[]} */
  encode(text) {
    const found = this.tokenizer.encode(text, { add_special_tokens: false });
    return Array.from(/** @type {{ ids: readonly (number | bigint)[] }} */ (found).ids ?? found, Number);
  }

  /** @param {number[]} tokens */
  decode(tokens) {
    return tokens.length ? this.tokenizer.decode(tokens, { skip_special_tokens: true }) : '';
  }

  /** @param {string} text @param {number} length tokens of a piece, of which a step learns one */
  read(text, length) {
    this.numbers = this.encode(text);
    this.length = Math.min(length, this.end - 1);
  }

  get isLongEnough() {
    return this.length >= SHORTEST;
  }

  /** The end of the part that is learned; the rest is held out, if it has a whole piece. */
  get end() {
    const held = Math.floor(HELD_OUT * this.numbers.length);
    return this.numbers.length - (held > SHORTEST ? held : 0);
  }

  /** The feeds for new tokens after those in the caches. @param {number[]} fresh @param {number} before tokens in the caches @param {Record<string, ort.Tensor>} caches */
  feeds(fresh, before, caches) {
    const all = before + fresh.length;
    return { input_ids: int64(fresh), attention_mask: int64(Array(all).fill(1)), position_ids: int64(places(fresh.length, before)), ...caches };
  }

  /** A piece of the text, with the tokens that follow each. @param {number} first @param {number} length */
  piece(first, length) {
    const row = this.numbers.slice(first, first + length + 1);
    return { ...this.feeds(row.slice(0, -1), 0, this.empty), target: int64(row.slice(1)) };
  }

  batch() {
    return this.piece(Math.floor(Math.random() * (this.end - this.length)), this.length);
  }

  /** The loss on the part of the text that is held out; undefined without one. */
  async test() {
    const length = Math.min(this.length, this.numbers.length - this.end - 1);
    if (length < SHORTEST) return undefined;
    const room = this.numbers.length - this.end - length - 1;
    const count = room ? TESTS : 1;
    let sum = 0;
    for (let n = 0; n < count; n++) sum += (await this.session.evaluate(this.piece(this.end + Math.floor((n * room) / Math.max(1, count - 1)), length))).loss;
    return sum / count;
  }

  /** Milliseconds of a step, and bytes of memory. The steps that it makes change nothing. */
  async measure() {
    const state = await this.session.state();
    await this.session.step(this.batch(), { rate: 0 }); // the first one takes memory and warms up
    const begin = performance.now();
    await this.session.step(this.batch(), { rate: 0 });
    const time = performance.now() - begin;
    await this.session.load(state);
    return { time, memory: (await this.session.memory()).arena };
  }

  /**
   * Writes on from a text, token by token. @param {string} prompt @param {number} count @param {number} temperature
   * @param {() => number} random @param {(text: string) => boolean} more gets the text so far; whether to go on
   */
  async write(prompt, count, temperature, random, more) {
    let [caches, fresh, before] = [this.empty, this.encode(prompt), 0];
    /** @type {number[]} */
    const written = [];
    const presents = Object.keys(caches).map((name) => name.replace('past_key_values', 'present'));
    while (written.length < count && more(this.decode(written))) {
      const { logits, ...found } = await this.session.evaluate(this.feeds(fresh, before, caches), ['logits', ...presents]);
      before += fresh.length;
      fresh = [drawn(/** @type {Float32Array} */ (logits.data).subarray(-logits.dims[2]), temperature, random)];
      written.push(...fresh);
      caches = Object.fromEntries(presents.map((name) => [name.replace('present', 'past_key_values'), found[name]]));
    }
    return this.decode(written);
  }

  /** Does something with the model as it was before it learned. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  async untaught(work) {
    const state = await this.session.state();
    await this.session.load(this.start);
    try {
      return await work();
    } finally {
      await this.session.load(state);
    }
  }

  /** Forgets what was learned. */
  startOver() {
    return this.session.load(this.start);
  }
}
