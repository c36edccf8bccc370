// Writes text with a decoder: streaming, sampling, a KV cache that stays between turns, a draft model.
// pyruntime/runtime/writing.py decides what runs.

import { notTogether } from '../runtime/generation.js';
import { InvalidInput as Own } from '../common/errors.js';
import { DRAFT, NOTHING, NOTHING_HINT, SavedText } from '../runtime/saved_text.js';
import { BEYOND, BUSY, BUSY_HINT, JointWriter, Numbers, OVERTAKEN, Sampling, Text, Writer, refusedNumber } from '../runtime/writing.js';
import { Decoder, Encoder } from './decoder.js';
import { optionsFor, partsOf } from './parts.js';
import { read, write } from './text_file.js';

/** @typedef {import('./parts.js').Session} Session */
/** @typedef {import('./decoder.js').Tensor} Tensor */
/** chat_template, bos_token, eos_token: of transformers.js alone.
 * @typedef {{ encode: (text: string, options?: object) => any, decode: (tokens: number[], options?: object) => string, chat_template?: string, bos_token?: string,
 *   eos_token?: string }} Tokenizer */
/** What was written, as web/extras.d.ts documents it.
 * @typedef {{ tokens: number[], text: string, reason: 'length' | 'token' | 'text', reused: number, first: number, milliseconds: number, drafted: number,
 *   accepted: number }} Generated */
/** A message of a chat, and what else templates know of one. @typedef {{ role: string, content?: unknown } & Record<string, unknown>} Message */
/** @typedef {string | readonly number[] | readonly Message[]} Prompt */
/** @typedef {{ maxTokens?: number, seed?: number, stop?: string | readonly string[], inputs?: Record<string, Tensor>, signal?: AbortSignal } & Partial<Sampling>} Settings */
/** @typedef {import('./chat_files.js').Templates} Templates */
/** @typedef {import('./chat_files.js').FileSource} FileSource */
/** @typedef {{ tokenizer?: Tokenizer, chatTemplate?: string | Templates, draft?: Session, draftTokens?: number, lookup?: number,
 *   inputs?: Record<string, Tensor>, encoder?: Session, caches?: Record<string, string>, adapters?: unknown, stopTokens?: readonly number[] }} Options */

/** @typedef {{ texts: Text[], how: Sampling, numbers: Numbers, most: number, signal: AbortSignal | undefined,
 *   inputs: Record<string, Tensor> | undefined }} Writing */

export class TextGenerator {
  /** Options of the sessions that it takes. @param {{ draftTokens?: number | null, logits?: string | null } | null} [options] */
  static options(options) {
    const { draftTokens, logits } = optionsFor(options, { draftTokens: 0, logits: 'logits' }, 'TextGenerator.options', TypeError);
    return { sampleFrom: logits, samplePositions: draftTokens + 1 };
  }

  /**
   * A generator whose tokenizer and chat template are in files.
   * @param {Session | Promise<Session>} session they are read while it opens @param {{ tokenizer: Tokenizer | FileSource, chatTemplate?: string | FileSource } & Omit<Options, 'tokenizer' | 'chatTemplate'>} options
   */
  static async create(session, options) {
    const { tokenizer, chatTemplate, ...others } = options ?? {};
    const reading = Promise.all([readFile(tokenizer), readFile(chatTemplate)]);
    reading.catch(() => {}); // its error is handled where it is awaited
    const opened = await session;
    const { InvalidInput } = partsOf(opened);
    const [found, template] = await reading.catch((cause) => {
      throw new InvalidInput(`the tokenizer or the chat template cannot be read: ${messageOf(cause)}`, { cause });
    });
    if (found && !found.tokenizer) throw new InvalidInput(`there is no tokenizer in ${tokenizer}`, { hint: 'a tokenizer.json or a GGUF file is expected' });
    if (template && !Object.keys(template.templates.texts).length) throw new InvalidInput(`there is no chat template in ${chatTemplate}`, { hint: TEMPLATE_HINT });
    const own = /** @type {string | undefined} */ (chatTemplate); // a file was read
    return new TextGenerator(opened, { ...others, tokenizer: found?.tokenizer ?? /** @type {Tokenizer} */ (tokenizer), chatTemplate: template?.templates ?? own ?? found?.templates });
  }

  /** @param {Session} session @param {Options | null} [options] */
  constructor(session, options) {
    this.parts = partsOf(session);
    const { InvalidInput } = this.parts;
    /** @type {Options & { draftTokens: number, lookup: number }} */
    const defaults = {
      tokenizer: undefined, chatTemplate: undefined, draft: undefined, draftTokens: 4, lookup: 0, inputs: undefined, encoder: undefined, caches: undefined, adapters: undefined,
      stopTokens: undefined,
    };
    const { tokenizer, chatTemplate, draft, draftTokens, lookup, inputs, encoder, caches, adapters, stopTokens } = optionsFor(options, defaults, 'TextGenerator', InvalidInput);
    if (tokenizer && !(/** @type {unknown} */ (tokenizer.encode) && /** @type {unknown} */ (tokenizer.decode))) {
      throw new InvalidInput(`the tokenizer is ${typeof tokenizer === 'string' ? `'${tokenizer}'` : 'another object'}`, { hint: 'an object with encode(text) and decode(tokens); TextGenerator.create takes files' });
    }
    this.check('draftTokens', draftTokens, true, 1);
    this.check('lookup', lookup, true);
    if (lookup && draft) throw new InvalidInput('both draft and lookup propose tokens', { hint: 'give one of them' });
    this.tokenizer = tokenizer;
    this.chatTemplate = chatTemplate ?? tokenizer?.chat_template;
    this.draftTokens = draft || lookup ? draftTokens : 0;
    this.lookup = lookup;
    this.stopTokens = [...stopTokens ?? specialTokens(tokenizer)];
    this.encoder = encoder ? new Encoder(encoder, session) : null;
    const given = { ...Object.fromEntries(this.encoder?.given.map((name) => [name, undefined]) ?? []), ...inputs };
    this.model = new Decoder(session, given, adapters, caches);
    this.draft = draft ? new Decoder(draft, given) : null;
    const { positions } = this.model.layout;
    const misfit = this.draftTokens && this.model.layout.noDraft(this.draftTokens + 1);
    if (misfit) throw new InvalidInput(`a draft does not fit: ${misfit}`, { hint: 'generate without draft' });
    if (positions <= this.draftTokens) {
      const hint = `create it with TextGenerator.options({ draftTokens: ${this.draftTokens} })`;
      throw new InvalidInput(`the session samples ${positions} positions, a draft of ${this.draftTokens} tokens needs ${this.draftTokens + 1}`, { hint });
    }
    this.isRunning = false;
    /** The newest call. @type {Writing | null} */
    this.newest = null;
  }

  /**
   * What follows the prompt; for a list of prompts, which are computed together, a list.
   * @param {Prompt | readonly Prompt[]} prompt @param {Settings} [settings] @returns {Promise<Generated | Generated[]>}
   */
  async generate(prompt, settings) {
    if (isList(prompt)) {
      const prompts = prompt.some(isMessages) ? await Promise.all(prompt.map((one) => (isMessages(one) ? this.applyChatTemplate(one) : one))) : prompt;
      return this.together(this.read(settings, prompts));
    }
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
  async* stream(prompt, settings) {
    const tokens = isMessages(prompt) ? await this.applyChatTemplate(prompt) : prompt;
    return yield* this.pieces(this.read(settings, [tokens]));
  }

  /**
   * Goes on with the newest text where it stopped, piece by piece; returns the whole text.
   * @param {{ maxTokens?: number, signal?: AbortSignal }} [settings] maxTokens: further ones; by default those that were left
   * @returns {AsyncGenerator<string, Generated>}
   */
  async* resume(settings) {
    const defaults = { maxTokens: /** @type {number | undefined} */ (undefined), signal: /** @type {AbortSignal | undefined} */ (undefined) };
    const { maxTokens, signal } = optionsFor(settings, defaults, 'resume', this.parts.InvalidInput);
    this.check('maxTokens', maxTokens ?? 0, true);
    const { text, writing } = this.single();
    const again = this.text(text.stops(), text.prompt);
    again.grow(text.tokens);
    return yield* this.pieces({ ...writing, texts: [again], most: maxTokens === undefined ? writing.most : again.tokens.length + maxTokens, signal, inputs: undefined });
  }

  /** The newest text, its settings and caches as a file, for `restore` in any page or process. @returns {Promise<ArrayBuffer>} */
  async save() {
    const { text, writing: { how, numbers: { seed }, most } } = this.single();
    return this.running(async () => {
      const found = [await this.model.pack(), ...this.draft ? [await this.draft.pack()] : []];
      return write(new SavedText(text.prompt, text.tokens, text.stops(), seed, most, how, found.map(({ saved }) => saved)), found.flatMap(({ parts }) => parts));
    });
  }

  /**
   * Continues with a text that `save` returned, in any language; returns the text so far.
   * @param {Uint8Array | ArrayBuffer | Blob} file @returns {Promise<Generated>}
   */
  async restore(file) {
    if (this.isRunning) throw new this.parts.InvalidInput(BUSY, { hint: BUSY_HINT });
    return this.running(async () => {
      const { saved: { prompt, tokens, stops, seed, most, how, decoders }, body } = read(await bytesOf(file));
      if (decoders.length !== (this.draft ? 2 : 1)) {
        throw new this.parts.InvalidInput(`the text was saved by ${decoders.length} decoders, this generator has ${this.draft ? 2 : 1}`, { hint: DRAFT });
      }
      const text = this.text(stops, prompt);
      text.grow(tokens);
      const caches = [await this.model.read(decoders[0], body), ...this.draft ? [await this.draft.read(decoders[1], body)] : []];
      this.model.restore(decoders[0].cached, caches[0]);
      this.draft?.restore(decoders[1].cached, caches[1]);
      this.newest = { texts: [text], how, numbers: new Numbers(seed), most, signal: undefined, inputs: undefined };
      return generated(text);
    });
  }

  /** The newest text, unless there are several, or the model is running. */
  single() {
    const { InvalidInput } = this.parts;
    if (this.isRunning) throw new InvalidInput(BUSY, { hint: BUSY_HINT });
    const writing = this.newest;
    if (writing?.texts.length !== 1) throw new InvalidInput(NOTHING, { hint: NOTHING_HINT });
    return { text: writing.texts[0], writing };
  }

  /** The pieces of one text. @param {Writing} writing @returns {AsyncGenerator<string, Generated>} */
  async* pieces(writing) {
    const { texts: [text], how, numbers, most, signal, inputs } = writing;
    const writer = new Writer(text, numbers, most, this.draftTokens, this.lookup);
    this.newest = writing;
    if (inputs) await this.give(inputs);
    this.checkInputs();
    text.reused = this.model.kept(text.soFar(), 1);
    for (let request; (request = writer.request());) {
      if (this.newest !== writing) throw new this.parts.InvalidInput(OVERTAKEN, { hint: BUSY_HINT });
      const decoder = request.ofDraft && this.draft ? this.draft : this.model;
      const found = await this.running(() => decoder.sample(request, how, signal));
      for (const token of writer.accepted(request, found)) {
        const piece = text.add(token);
        if (piece) yield piece;
        if (text.isEnded) break;
      }
    }
    const rest = text.end();
    if (rest) yield rest;
    return generated(text);
  }

  /** Writes several texts, without the draft. @param {Writing} writing @returns {Promise<Generated[]>} */
  async together(writing) {
    const { texts, how, numbers, most, signal, inputs } = writing;
    const { model } = this;
    this.newest = writing;
    if (inputs) await this.give(inputs);
    this.checkInputs();
    const refused = notTogether(model.layout, texts.map((text) => text.prompt));
    if (refused) throw new this.parts.InvalidInput(refused, { hint: 'generate one prompt after the other' });
    const writer = new JointWriter(model.layout, texts, how, numbers, most);
    await this.running(async () => {
      try {
        model.start(texts.length);
        for (let feeds; (feeds = writer.feeds()).length;) writer.take(await model.run(feeds, signal));
      } finally {
        model.restart();
      }
    });
    for (const text of texts) text.end();
    return texts.map(generated);
  }

  /** Gives the models other inputs for a text. @param {Record<string, Tensor>} inputs */
  async give(inputs) {
    const tensors = await this.running(async () => (this.encoder ? this.encoder.run(inputs) : inputs));
    this.model.give(tensors);
    const { draft } = this;
    draft?.give(Object.fromEntries(Object.entries(tensors).filter(([name]) => draft.names.includes(name))));
  }

  /** Throws InvalidInput if an input has no tensor. */
  checkInputs() {
    const missing = this.model.missing();
    if (missing.length) throw new this.parts.InvalidInput(`the model needs ${missing.join(', ')}`, { hint: 'inputs: { name: tensor } of a text gives it' });
  }

  /** @template T @param {() => Promise<T>} work runs the model */
  async running(work) {
    this.isRunning = true;
    try {
      return await work();
    } catch (error) {
      throw this.parts.withHint(this.ofPackage(error), BEYOND);
    } finally {
      this.isRunning = false;
    }
  }

  /** An error of this file's copy of the classes as one of the package's. @param {unknown} error */
  ofPackage(error) {
    const { InvalidInput } = this.parts;
    if (!(error instanceof Own) || error.constructor === InvalidInput) return error;
    return new InvalidInput(error.detail, { hint: error.hint });
  }

  /**
   * The messages of a chat as tokens, or as a text if `tokenize` is false. variables: others that the template knows.
   * @param {readonly Message[]} messages @param {{ tools?: readonly unknown[], addGenerationPrompt?: boolean, tokenize?: boolean, variables?: Record<string, unknown> } | null} [options]
   * @returns {Promise<string | number[]>}
   */
  async applyChatTemplate(messages, options) {
    const { InvalidInput } = this.parts;
    /** @type {{ tools?: readonly unknown[], addGenerationPrompt: boolean, tokenize: boolean, variables: Record<string, unknown> }} */
    const defaults = { tools: undefined, addGenerationPrompt: true, tokenize: true, variables: {} };
    const { tools, addGenerationPrompt, tokenize, variables } = optionsFor(options, defaults, 'applyChatTemplate', InvalidInput);
    if (!isMessages(messages) || !messages.every((message) => message?.role)) throw new InvalidInput('messages are expected', { hint: "a list of { role: 'user', content: '…' }" });
    const { render, textsOf } = await chatFiles();
    const given = this.chatTemplate;
    const { texts, tokens } = given && typeof given === 'object' && 'texts' in given ? given : { texts: textsOf(given), tokens: tokensOf(this.tokenizer) };
    const template = texts[tools?.length && texts.tool_use ? 'tool_use' : 'default'];
    if (!template) throw new InvalidInput('this model has no chat template', { hint: TEMPLATE_HINT });
    try {
      const text = render(template, { ...tokens, messages, tools: tools ?? null, documents: null, add_generation_prompt: addGenerationPrompt, ...variables });
      return tokenize ? this.encoded(text, { add_special_tokens: false }) : text;
    } catch (error) {
      if (error instanceof InvalidInput) throw error;
      throw new InvalidInput(`the chat template refuses these messages: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Forgets the tokens of earlier calls, and frees their caches. The sessions stay open. */
  reset() {
    this.model.restart();
    this.draft?.restart();
  }

  /**
   * Throws InvalidInput, also while the model runs for another text.
   * @param {Settings | null | undefined} settings @param {readonly Prompt[]} prompts @returns {Writing}
   */
  read(settings, prompts) {
    const { InvalidInput } = this.parts;
    /** @type {Settings & { maxTokens: number, stop: string | readonly string[] }} */
    const defaults = { maxTokens: 256, stop: [], seed: undefined, signal: undefined, inputs: undefined, ...new Sampling() };
    const { maxTokens, seed, stop, signal, inputs, ...sampling } = optionsFor(settings, defaults, 'generate', InvalidInput);
    if (this.isRunning) throw new InvalidInput(BUSY, { hint: BUSY_HINT });
    this.check('maxTokens', maxTokens, true);
    if (seed !== undefined && !Number.isInteger(seed)) throw new InvalidInput(`seed is ${seed}`, { hint: 'an integer is expected' });
    const numbers = new Numbers(seed ?? Math.floor(Math.random() * 2 ** 31));
    const begun = prompts.map((prompt) => this.encoded(prompt));
    return { texts: begun.map((tokens) => this.text(stop, tokens)), how: this.sampling(sampling), numbers, most: maxTokens, signal, inputs };
  }

  /** @param {Record<string, unknown>} given all settings of sampling @returns {Sampling} */
  sampling(given) {
    const how = Object.assign(new Sampling(), given);
    for (const [name, value] of Object.entries(given)) this.check(name, value, name === 'topK');
    if (how.repetitionPenalty === 0) throw new this.parts.InvalidInput('repetitionPenalty is 0', { hint: '1 changes nothing, 1.1 avoids repetition' });
    return how;
  }

  /** @param {string} name @param {unknown} value @param {boolean} isWhole @param {number} [least] */
  check(name, value, isWhole, least = 0) {
    const hint = refusedNumber(typeof value === 'number' ? value : NaN, isWhole, least);
    if (hint) throw new this.parts.InvalidInput(`${name} is ${value}`, { hint });
  }

  /** @param {string | readonly string[]} stop @param {number[]} prompt */
  text(stop, prompt) {
    const stops = typeof stop === 'string' ? [stop] : Array.isArray(stop) ? [...stop] : [NaN];
    if (!stops.every((one) => typeof one === 'string')) throw new this.parts.InvalidInput(`stop is ${stop}`, { hint: 'a text or a list of texts is expected' });
    if (stops.length && !this.tokenizer) throw new this.parts.InvalidInput('stop needs a tokenizer', { hint: 'stopTokens end a text without one' });
    const decode = (/** @type {number[]} */ tokens) => this.tokenizer?.decode(tokens, { skip_special_tokens: true }) ?? '';
    return new Text(prompt, decode, stops, this.stopTokens, () => performance.now());
  }

  /** @param {Prompt} prompt @param {{ add_special_tokens: boolean }} [how] of the tokenizer @returns {number[]} */
  encoded(prompt, how) {
    const { InvalidInput } = this.parts;
    let tokens = prompt;
    if (typeof prompt === 'string') {
      if (!this.tokenizer) throw new InvalidInput('a text needs a tokenizer', { hint: 'give one, or give tokens' });
      const found = this.tokenizer.encode(prompt, how);
      tokens = found.ids ?? found;
    }
    if (typeof tokens?.length !== 'number') throw new InvalidInput(`the prompt is ${tokens}`, { hint: 'a text or a list of tokens is expected' });
    if (!tokens.length) throw new InvalidInput('the prompt has no tokens', { hint: "begin with the model's start token" });
    return [.../** @type {readonly number[]} */ (tokens)].map(Number);
  }
}

/** @param {Uint8Array | ArrayBuffer | Blob} file */
const bytesOf = async (file) => (file instanceof Uint8Array ? file : new Uint8Array(file instanceof Blob ? await file.arrayBuffer() : file));

/** @param {Text} text @returns {Generated} */
function generated({ tokens, text, reason, reused, first, elapsed: milliseconds, drafted, accepted }) {
  return { tokens: [...tokens], text, reason: /** @type {Generated['reason']} */ (reason), reused, first, milliseconds, drafted, accepted };
}

/** @param {Prompt | readonly Prompt[]} prompt @returns {prompt is readonly Prompt[]} */
const isList = (prompt) => typeof prompt !== 'string' && prompt?.length > 0 && !isMessages(prompt) && (typeof prompt[0] === 'string' || typeof prompt[0] === 'object');

/** @param {unknown} prompt @returns {prompt is readonly Message[]} */
const isMessages = (prompt) => Array.isArray(prompt) && prompt[0]?.role !== undefined;

const TEMPLATE_HINT = 'give chatTemplate: a Jinja text; TextGenerator.create also takes a chat_template.jinja or a tokenizer_config.json';

/** Whether it is a file, and neither a tokenizer nor a Jinja text. @param {Tokenizer | FileSource | null | undefined} given @returns {given is FileSource} */
const isFile = (given) => (typeof given === 'string' ? !given.includes('{') : given !== undefined && given !== null && !('encode' in given));

/** Loaded when it is first needed: it has two libraries. */
const chatFiles = () => import('./chat_files.js');

/** @param {Tokenizer | FileSource | null | undefined} given @returns {Promise<import('./chat_files.js').Found | null>} null: it is no file */
const readFile = async (given) => (isFile(given) ? (await chatFiles()).readChatFile(given) : null);

/** @param {unknown} error */
const messageOf = (error) => /** @type {{ message?: string }} */ (error)?.message ?? String(error);

/** What a template knows of a tokenizer of transformers.js. @param {Tokenizer} [tokenizer] @returns {Record<string, string>} */
const tokensOf = ({ bos_token = '', eos_token = '' } = /** @type {Tokenizer} */ ({})) => ({ bos_token, eos_token });

/** The special tokens of a tokenizer of @huggingface/tokenizers or transformers.js. @param {any} tokenizer @returns {number[]} */
function specialTokens(tokenizer) {
  const added = [...tokenizer?.get_added_tokens_decoder?.() ?? []].filter(([, { special }]) => special);
  return [...added.map(([token]) => Number(token)), ...tokenizer?.all_special_ids ?? []];
}
