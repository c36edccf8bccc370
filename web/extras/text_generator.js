// Writes text with a decoder: streaming, sampling, a KV cache that stays between turns, a draft model. Twin of
// pyruntime/api/text_generator.py.

import { Random, StopTexts, TextStream, agreed, kept } from '../runtime/generation.js';
import { Decoder } from './decoder.js';
import { partsOf } from './parts.js';
import { writeTogether } from './written_together.js';

/** @typedef {import('./parts.js').Session} Session */
/** @typedef {import('./decoder.js').Sampling} Sampling */
/** @typedef {{ encode: (text: string) => any, decode: (tokens: number[], options?: any) => string }} Tokenizer */
/** What was written, as web/extras.d.ts documents it.
 * @typedef {{ tokens: number[], text: string, reason: 'length' | 'token' | 'text', reused: number, first: number, milliseconds: number, drafted: number,
 *   accepted: number }} Generated */
/** @typedef {string | readonly number[]} Prompt */
/** @typedef {{ maxTokens?: number, seed?: number, stop?: string | readonly string[], signal?: AbortSignal } & Partial<Sampling>} Settings */
/** @typedef {{ tokenizer?: Tokenizer, draft?: Session, draftTokens?: number, inputs?: Record<string, any>, stopTokens?: readonly number[] }} Options */

const DEFAULTS = { temperature: 0, topK: 0, topP: 1, repetitionPenalty: 1 };

export class TextGenerator {
  /** Options of the sessions that it takes. @param {{ draftTokens?: number, logits?: string }} [options] */
  static options({ draftTokens = 0, logits = 'logits' } = {}) {
    return { sampleFrom: logits, samplePositions: draftTokens + 1 };
  }

  /** @param {Session} session @param {Options} [options] */
  constructor(session, { tokenizer, draft, draftTokens = 4, inputs = {}, stopTokens } = {}) {
    this.parts = partsOf(session);
    const { InvalidInput } = this.parts;
    if (!(Number.isInteger(draftTokens) && draftTokens >= 1)) throw new InvalidInput(`draftTokens is ${draftTokens}`, { hint: 'it must be 1 or more' });
    this.tokenizer = tokenizer;
    this.draftTokens = draft ? draftTokens : 0;
    this.stopTokens = new Set(stopTokens ?? specialTokens(tokenizer));
    this.model = new Decoder(session, inputs);
    this.draft = draft ? new Decoder(draft, inputs) : null;
    const { positions } = this.model.layout;
    if (positions <= this.draftTokens) {
      const hint = `create it with TextGenerator.options({ draftTokens: ${this.draftTokens} })`;
      throw new InvalidInput(`the session samples ${positions} positions, a draft of ${this.draftTokens} tokens needs ${this.draftTokens + 1}`, { hint });
    }
    this.isWriting = false;
  }

  /**
   * What follows the prompt; for a list of prompts, which are computed together, a list.
   * @param {Prompt | readonly Prompt[]} prompt @param {Settings} [settings] @returns {Promise<Generated | Generated[]>}
   */
  async generate(prompt, settings = {}) {
    if (isList(prompt)) return this.together(prompt, settings);
    const stream = this.stream(prompt, settings);
    for (;;) {
      const { done, value } = await stream.next();
      if (done) return value;
    }
  }

  /**
   * The text that follows the prompt, piece by piece; returns what was written.
   * @param {Prompt} prompt @param {Settings} [settings] @returns {AsyncGenerator<string, Generated>}
   */
  async* stream(prompt, settings = {}) {
    this.begin();
    try {
      const { maxTokens, stop, signal, how, numbers } = this.read(settings);
      const tokens = this.encoded(prompt);
      const text = this.text(stop, tokens);
      text.out.reused = kept(this.model.cached, tokens, 1);
      while (text.out.tokens.length < maxTokens && !text.isEnded) {
        for (const token of await this.next(tokens, maxTokens, how, numbers, text.out, signal)) {
          const piece = text.add(token);
          if (piece) yield piece;
          if (text.isEnded) break;
        }
      }
      const rest = text.end();
      if (rest) yield rest;
      return text.out;
    } finally {
      this.isWriting = false;
    }
  }

  /** Without the draft. @param {readonly Prompt[]} prompts @param {Settings} settings @returns {Promise<Generated[]>} */
  async together(prompts, settings) {
    this.begin();
    try {
      const { stop, ...how } = this.read(settings);
      const begun = prompts.map((prompt) => this.encoded(prompt));
      const texts = begun.map((tokens) => this.text(stop, tokens));
      await writeTogether(this.model, begun, texts, how);
      for (const text of texts) text.end();
      return texts.map(({ out }) => out);
    } finally {
      this.isWriting = false;
    }
  }

  /** One text, or one list of texts, at a time. */
  begin() {
    if (this.isWriting) throw new this.parts.InvalidInput('this generator is writing another text', { hint: 'use one generator for each text' });
    this.isWriting = true;
  }

  /** Forgets the tokens of earlier calls, and frees their caches. The sessions stay open. */
  reset() {
    this.model.restart();
    this.draft?.restart();
  }

  /**
   * The next tokens: one, or with a draft those that the model agrees with, and one more. A place in the text has its random
   * number, so that the draft does not change the result.
   * @param {readonly number[]} prompt @param {number} maxTokens @param {Sampling} how @param {(start: number, count: number) => number[]} numbers
   * @param {Generated} out @param {AbortSignal} [signal]
   */
  async next(prompt, maxTokens, how, numbers, out, signal) {
    const place = out.tokens.length;
    const tokens = [...prompt, ...out.tokens];
    /** @type {number[]} */
    const drafted = [];
    const most = Math.min(this.draftTokens, maxTokens - place - 1);
    while (this.draft && drafted.length < most) {
      drafted.push(...await this.draft.sample([...tokens, ...drafted], 1, how, numbers(place + drafted.length, 1), signal));
    }
    const count = drafted.length + 1;
    const found = await this.model.sample([...tokens, ...drafted], count, how, numbers(place, count), signal);
    const good = agreed(drafted, found);
    out.drafted += drafted.length;
    out.accepted += good;
    return found.slice(0, good + 1);
  }

  /** @param {Settings} settings */
  read({ maxTokens = 256, seed, stop = [], signal, ...sampling }) {
    if (!(maxTokens >= 0) || maxTokens % 1) throw new this.parts.InvalidInput(`maxTokens is ${maxTokens}`, { hint: 'an integer from 0 on is expected' });
    return { maxTokens, stop, signal, how: this.sampling(sampling), numbers: this.numbers(seed) };
  }

  /** @param {Record<string, unknown>} given @returns {Sampling} */
  sampling(given) {
    const { InvalidInput } = this.parts;
    for (const [name, value] of Object.entries(given)) {
      if (!(name in DEFAULTS)) throw new InvalidInput(`the setting "${name}" does not exist`, { hint: `there are ${Object.keys(DEFAULTS).join(', ')}` });
      const whole = name === 'topK';
      if (typeof value !== 'number' || !(value >= 0) || (whole && value % 1)) {
        throw new InvalidInput(`${name} is ${value}`, { hint: `${whole ? 'an integer' : 'a number'} from 0 on is expected` });
      }
    }
    const found = { ...DEFAULTS, ...given };
    if (found.repetitionPenalty === 0) throw new InvalidInput('repetitionPenalty is 0', { hint: '1 changes nothing, 1.1 avoids repetition' });
    return found;
  }

  /** Random numbers by place. @param {number} [seed] */
  numbers(seed) {
    if (seed !== undefined && !Number.isInteger(seed)) throw new this.parts.InvalidInput(`seed is ${seed}`, { hint: 'an integer is expected' });
    const random = new Random(seed ?? Math.floor(Math.random() * 2 ** 31));
    /** @type {number[]} */
    const made = [];
    return (/** @type {number} */ start, /** @type {number} */ count) => {
      while (made.length < start + count) made.push(random.next());
      return made.slice(start, start + count);
    };
  }

  /** @param {string | readonly string[]} stop @param {number[]} prompt */
  text(stop, prompt) {
    const stops = typeof stop === 'string' ? [stop] : [...stop ?? []];
    if (!stops.every((one) => typeof one === 'string')) throw new this.parts.InvalidInput(`stop is ${stop}`, { hint: 'a text or a list of texts is expected' });
    if (stops.length && !this.tokenizer) throw new this.parts.InvalidInput('stop needs a tokenizer', { hint: 'stopTokens end a text without one' });
    const decode = (/** @type {number[]} */ tokens) => this.tokenizer?.decode(tokens, { skip_special_tokens: true }) ?? '';
    return new Text(new TextStream(decode, prompt), new StopTexts(stops), this.stopTokens);
  }

  /** @param {Prompt} prompt @returns {number[]} */
  encoded(prompt) {
    const { InvalidInput } = this.parts;
    let tokens = prompt;
    if (typeof prompt === 'string') {
      if (!this.tokenizer) throw new InvalidInput('a text needs a tokenizer', { hint: 'give one, or give tokens' });
      const found = this.tokenizer.encode(prompt);
      tokens = found.ids ?? found;
    }
    if (typeof tokens?.length !== 'number') throw new InvalidInput(`the prompt is ${tokens}`, { hint: 'a text or a list of tokens is expected' });
    if (!tokens.length) throw new InvalidInput('the prompt has no tokens', { hint: "begin with the model's start token" });
    return [.../** @type {readonly number[]} */ (tokens)].map(Number);
  }
}

/** A text that grows by tokens, up to a stop. */
class Text {
  /** @param {TextStream} stream @param {StopTexts} stops @param {Set<number>} stopTokens */
  constructor(stream, stops, stopTokens) {
    /** @type {Generated} */
    this.out = { tokens: [], text: '', reason: 'length', reused: 0, first: 0, milliseconds: 0, drafted: 0, accepted: 0 };
    this.stream = stream;
    this.stops = stops;
    this.stopTokens = stopTokens;
    this.isEnded = false;
    this.start = performance.now();
  }

  /** The text that is certain now. @param {number} token */
  add(token) {
    const { out } = this;
    out.tokens.push(token);
    out.milliseconds = performance.now() - this.start;
    out.first ||= out.milliseconds;
    if (!this.stopTokens.has(token)) return this.told(this.stream.add(token));
    out.reason = 'token';
    this.isEnded = true;
    return '';
  }

  /** The rest of the text. */
  end() {
    if (this.stops.isStopped) return '';
    const rest = this.told(this.stream.rest());
    if (this.stops.isStopped) return rest;
    this.out.text += this.stops.waiting;
    return rest + this.stops.waiting;
  }

  /** @param {string} text */
  told(text) {
    const piece = this.stops.add(text);
    this.out.text += piece;
    if (this.stops.isStopped) {
      this.out.reason = 'text';
      this.isEnded = true;
    }
    return piece;
  }
}

/** @param {Prompt | readonly Prompt[]} prompt @returns {prompt is readonly Prompt[]} */
const isList = (prompt) => typeof prompt !== 'string' && prompt?.length > 0 && (typeof prompt[0] === 'string' || typeof prompt[0] === 'object');

/** The special tokens of a tokenizer of @huggingface/tokenizers or transformers.js. @param {any} tokenizer @returns {number[]} */
function specialTokens(tokenizer) {
  const added = [...tokenizer?.get_added_tokens_decoder?.() ?? []].filter(([, { special }]) => special);
  return [...added.map(([token]) => Number(token)), ...tokenizer?.all_special_ids ?? []];
}
