// Writes text with a decoder: streaming, sampling, a KV cache that stays between turns, a draft model.
// pyruntime/runtime/writing.py decides what runs.

import { InvalidInput as Own } from '../common/errors.js';
import { BeamWriter, refusedBeams } from '../runtime/beams.js';
import { DRAFT, NOTHING, NOTHING_HINT, SavedText } from '../runtime/saved_text.js';
import { Chat, TextBatch, close } from '../runtime/text_batch.js';
import { BEYOND, Numbers, SHORTER, Writer, refusedLength } from '../runtime/writing.js';
import { Decoder, Encoder } from './decoder.js';
import { optionsOf } from '../common/records.js';
import { partsOf } from './parts.js';
import { Turns } from './text_batch.js';
import { read, write } from './text_file.js';
import { Prompts, isList, readFiles } from './text_prompts.js';
import { checkNumber, generated, readSettings, rowOf } from './text_settings.js';

/** @typedef {import('./parts.js').Session} Session */
/** @typedef {import('./decoder.js').Tensor} Tensor */
/** @typedef {import('./text_prompts.js').FileSource} FileSource */
/** @typedef {import('./text_prompts.js').Message} Message */
/** @typedef {import('./text_prompts.js').Prompt} Prompt */
/** @typedef {import('./text_prompts.js').Templates} Templates */
/** @typedef {import('./text_prompts.js').Tokenizer} Tokenizer */
/** @typedef {import('./text_settings.js').Generated} Generated */
/** @typedef {import('./text_settings.js').Settings} Settings */
/** @typedef {import('./text_settings.js').Writing} Writing */
/** @typedef {{ tokenizer?: Tokenizer, chatTemplate?: string | Templates, draft?: Session, draftTokens?: number, lookup?: number,
 *   inputs?: Record<string, Tensor>, encoder?: Session, caches?: Record<string, string>, adapters?: unknown, stopTokens?: number | readonly number[] }} Options */

export class TextGenerator {
  /** Options of the sessions that it takes. @param {{ draftTokens?: number | null, logits?: string | null } | null} [options] */
  static options(options) {
    const { draftTokens, logits } = optionsOf(options, { draftTokens: 0, logits: 'logits' }, 'TextGenerator.options', TypeError);
    return { sampleFrom: logits, samplePositions: draftTokens + 1, sampleMasks: true };
  }

  /**
   * A generator whose tokenizer and chat template are in files.
   * @param {Session | Promise<Session>} session they are read while it opens @param {{ tokenizer: Tokenizer | FileSource, chatTemplate?: string | FileSource } & Omit<Options, 'tokenizer' | 'chatTemplate'>} options
   */
  static async create(session, options) {
    const { tokenizer, chatTemplate, ...others } = options ?? {};
    const files = await readFiles(session, tokenizer, chatTemplate);
    return new TextGenerator(await session, { ...others, ...files });
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
    const { tokenizer, chatTemplate, draft, draftTokens, lookup, inputs, encoder, caches, adapters, stopTokens } = optionsOf(options, defaults, 'TextGenerator', InvalidInput);
    this.prompts = new Prompts(tokenizer, chatTemplate, stopTokens, InvalidInput);
    this.tokenizer = tokenizer;
    checkNumber('draftTokens', draftTokens, InvalidInput);
    checkNumber('lookup', lookup, InvalidInput);
    if (lookup && draft) throw new InvalidInput('both draft and lookup propose tokens', { hint: 'give one of them' });
    this.draftTokens = draft || lookup ? draftTokens : 0;
    this.lookup = lookup;
    this.encoder = encoder ? new Encoder(encoder, session) : null;
    const given = { ...Object.fromEntries(this.encoder?.given.map((name) => [name, undefined]) ?? []), ...inputs };
    this.model = this.typed(() => new Decoder(session, given, adapters, caches));
    this.draft = draft ? this.typed(() => new Decoder(draft, given)) : null;
    const { positions } = this.model.layout;
    const misfit = this.draftTokens && this.model.layout.noDraft(this.draftTokens + 1);
    if (misfit) throw new InvalidInput(`a draft does not fit: ${misfit}`, { hint: 'generate without draft' });
    if (positions <= this.draftTokens) {
      const hint = `create it with TextGenerator.options({ draftTokens: ${this.draftTokens} })`;
      throw new InvalidInput(`the session samples ${positions} positions, a draft of ${this.draftTokens} tokens needs ${this.draftTokens + 1}`, { hint });
    }
    this.batch = new TextBatch([this.model, ...this.draft ? [this.draft] : []], new Turns((error) => this.told(error)));
    /** Reads formats; loaded with the first one. @type {Promise<import('./formats/formats.js').Formats> | null} */
    this.formats = null;
    /** The newest call. @type {Writing | null} */
    this.newest = null;
  }

  /**
   * What follows the prompt; for a list of prompts, which are written together, a list. The seed of each is one more than that of the one before.
   * @param {Prompt | readonly Prompt[]} prompt @param {Settings} [settings] @returns {Promise<Generated | Generated[]>}
   */
  async generate(prompt, settings) {
    if (isList(prompt)) return this.whole(this.read(settings, await this.ready(settings, prompt)));
    const ready = await this.ready(settings, [prompt]);
    return (await this.whole(this.read(settings, ready)))[0];
  }

  /**
   * The text that follows the prompt, piece by piece; returns what was written.
   * @param {Prompt} prompt @param {Settings} [settings] @returns {AsyncGenerator<string, Generated>}
   */
  async* stream(prompt, settings) {
    const ready = await this.ready(settings, [prompt]);
    return yield* this.pieces(this.read(settings, ready));
  }

  /**
   * Goes on with the newest text where it stopped, piece by piece; returns the whole text.
   * @param {{ maxTokens?: number, signal?: AbortSignal }} [settings] maxTokens: further ones; by default those that were left
   * @returns {AsyncGenerator<string, Generated>}
   */
  async* resume(settings) {
    const defaults = { maxTokens: /** @type {number | undefined} */ (undefined), signal: /** @type {AbortSignal | undefined} */ (undefined) };
    const { maxTokens, signal } = optionsOf(settings, defaults, 'resume', this.parts.InvalidInput);
    checkNumber('maxTokens', maxTokens ?? 0, this.parts.InvalidInput);
    const { text, writing } = this.single();
    const again = this.prompts.text(text.stops(), text.prompt, writing.form());
    again.grow(text.tokens);
    return yield* this.pieces({ ...writing, texts: [again], most: maxTokens === undefined ? writing.most : again.tokens.length + maxTokens, signal, inputs: undefined });
  }

  /** The newest text, its settings and caches as a file, for `restore` in any page or process. @returns {Promise<ArrayBuffer>} */
  async save() {
    const { text, writing: { how, numbers: { seed }, most, format } } = this.single();
    return this.turn(async () => {
      await this.batch.useAlone(text);
      const found = [await this.model.pack(), ...this.draft ? [await this.draft.pack()] : []];
      return write(new SavedText(text.prompt, text.tokens, text.stops(), seed, most, how, found.map(({ saved }) => saved), format ?? null), found.flatMap(({ parts }) => parts));
    });
  }

  /**
   * Continues with a text that `save` returned, in any language; returns the text so far.
   * @param {Uint8Array | ArrayBuffer | Blob} file @returns {Promise<Generated>}
   */
  async restore(file) {
    return this.turn(async () => {
      await this.batch.enter(null);
      const { saved: { prompt, tokens, stops, seed, most, how, decoders, format }, body } = read(await bytesOf(file));
      if (decoders.length !== (this.draft ? 2 : 1)) {
        throw new this.parts.InvalidInput(`the text was saved by ${decoders.length} decoders, this generator has ${this.draft ? 2 : 1}`, { hint: DRAFT });
      }
      const form = await this.reader(format);
      const text = this.prompts.text(stops, prompt, form());
      text.grow(tokens);
      const caches = [await this.model.read(decoders[0], body), ...this.draft ? [await this.draft.read(decoders[1], body)] : []];
      this.model.restore(decoders[0].cached, caches[0]);
      this.draft?.restore(decoders[1].cached, caches[1]);
      this.batch.held = text;
      this.newest = { texts: [text], how, numbers: new Numbers(seed), most, signal: undefined, inputs: undefined, format, form };
      return generated(text);
    });
  }

  /** The newest text, unless there are several. */
  single() {
    const writing = this.newest;
    if (writing?.texts.length !== 1 || writing.how.numBeams > 1) throw new this.parts.InvalidInput(NOTHING, { hint: NOTHING_HINT });
    return { text: writing.texts[0], writing };
  }

  /** Adds the texts to those that are being written. @param {Writing} writing @param {boolean} isWhole */
  begun(writing, isWhole) {
    const { texts, how, numbers, signal, inputs } = writing;
    const chats = texts.map((text, n) => {
      const begin = async () => this.give(rowOf(inputs, n, texts.length, this.parts.Tensor));
      const most = this.most(text, writing.most);
      if (how.numBeams > 1) {
        const beams = this.beams(text, how, most, isWhole);
        return new Chat(text, beams, beams.how, begin, isWhole, signal);
      }
      const writer = new Writer(text, new Numbers(numbers.seed + n), most, this.draftTokens, this.lookup);
      return new Chat(text, writer, how, begin, isWhole, signal);
    });
    this.batch.add(chats);
    this.newest = writing;
    return chats;
  }

  /** The tokens that may follow a prompt. Throws InvalidInput if the model can read no more. @param {import('../runtime/writing.js').Text} text @param {number} most */
  most({ prompt: { length } }, most) {
    const { context } = this.model;
    const refused = refusedLength(length, context);
    if (refused) throw new this.parts.InvalidInput(refused, { hint: SHORTER });
    return Math.min(most, context - length);
  }

  /** @param {import('../runtime/writing.js').Text} text @param {Writing['how']} how @param {number} most @param {boolean} isWhole */
  beams(text, how, most, isWhole) {
    const refused = refusedBeams(this.model.layout, how, this.draftTokens, isWhole);
    if (refused) throw new this.parts.InvalidInput(`numBeams is ${how.numBeams}: ${refused}`, { hint: 'generate without numBeams' });
    return new BeamWriter(text, how, most, this.prompts.stopTokens);
  }

  /** The pieces of one text. @param {Writing} writing @returns {AsyncGenerator<string, Generated>} */
  async* pieces(writing) {
    const [chat] = this.begun(writing, false);
    try {
      while (chat.request || chat.pieces.length) {
        await this.batch.advance(chat);
        while (chat.pieces.length) yield /** @type {string} */ (chat.pieces.shift());
      }
      await this.batch.advance(chat); // throws its error
    } finally {
      close([chat]);
    }
    return generated(chat.text);
  }

  /** All texts once they are complete. @param {Writing} writing @returns {Promise<Generated[]>} */
  async whole(writing) {
    const chats = this.begun(writing, true);
    try {
      for (const chat of chats) await this.batch.advance(chat);
    } finally {
      close(chats);
    }
    return writing.texts.map(generated);
  }

  /**
   * Gives the models other inputs for a text. Throws InvalidInput if an input has no tensor.
   * @param {Record<string, Tensor> | undefined} inputs
   */
  async give(inputs) {
    const { draft, model } = this;
    if (inputs) {
      const tensors = this.encoder ? await this.encoder.run(inputs) : inputs;
      model.give(tensors);
      draft?.give(Object.fromEntries(Object.entries(tensors).filter(([name]) => draft.names.includes(name))));
    }
    const missing = model.missing();
    if (missing.length) throw new this.parts.InvalidInput(`the model needs ${missing.join(', ')}`, { hint: 'inputs: { name: tensor } of a text gives it' });
  }

  /** @template T @param {() => Promise<T>} work with the models @returns {Promise<T>} */
  async turn(work) {
    try {
      return /** @type {T} */ (await this.batch.turn(work));
    } catch (error) {
      throw this.told(error);
    }
  }

  /** An error as the caller gets it. @param {unknown} error */
  told(error) {
    return this.parts.withHint(this.ofPackage(error), BEYOND);
  }

  /** @template T @param {() => T} work @returns {T} */
  typed(work) {
    try {
      return work();
    } catch (error) {
      throw this.ofPackage(error);
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
   * @param {readonly Message[]} messages @param {Parameters<Prompts['applyChatTemplate']>[1]} [options]
   */
  async applyChatTemplate(messages, options) {
    return this.prompts.applyChatTemplate(messages, options);
  }

  /**
   * What is loaded or rendered before a call may run the model.
   * @param {Settings | null | undefined} settings @param {readonly Prompt[]} prompts
   */
  async ready(settings, prompts) {
    const rendered = await Promise.all(prompts.map((prompt) => this.prompts.rendered(prompt)));
    return { rendered, form: await this.reader(settings?.format) };
  }

  /**
   * Throws InvalidInput.
   * @param {Settings | null | undefined} settings @param {Awaited<ReturnType<TextGenerator['ready']>>} ready @returns {Writing}
   */
  read(settings, { rendered, form }) {
    const { stop, ...others } = readSettings(settings, this.parts.InvalidInput);
    return { ...others, form, texts: rendered.map((prompt) => this.prompts.text(stop, this.prompts.encoded(prompt), form())) };
  }

  /** What begins texts of a format. @param {import('./text_settings.js').Given | null | undefined} format @returns {Promise<() => import('../runtime/writing.js').Format | null>} */
  async reader(format) {
    if (format === undefined || format === null) return () => null;
    const formats = (this.formats ??= this.loaded());
    formats.catch(() => (this.formats = null)); // the next text tries again
    return (await formats).read(format);
  }

  async loaded() {
    const { Formats } = await import('./formats/formats.js');
    const tokens = /** @type {import('./formats/vocabulary.js').Tokens | undefined} */ (this.tokenizer); // checked there
    return new Formats(tokens, this.prompts.stopTokens, this.model.layout.words, this.parts.InvalidInput);
  }

  /** Forgets the tokens of earlier calls, and frees their caches, after the run of now. The sessions stay open. @returns {Promise<void>} */
  async reset() {
    await this.turn(async () => {
      await this.batch.enter(null);
      this.batch.restart();
    });
  }
}

/** @param {Uint8Array | ArrayBuffer | Blob} file */
const bytesOf = async (file) => (file instanceof Uint8Array ? file : new Uint8Array(file instanceof Blob ? await file.arrayBuffer() : file));
