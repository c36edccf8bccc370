// Texts that are bound to a JSON schema, a regular expression or a grammar. A file of its own, which is loaded with the first format.

import { InvalidInput as Own } from '../../common/errors.js';
import { ROOT, readGrammar } from '../../runtime/grammar.js';
import { Format } from '../../runtime/writing.js';
import { readSchema } from './json_schema.js';
import { Automaton } from './matcher.js';
import { readRegex } from './regex.js';
import { Vocabulary } from './vocabulary.js';

/** @typedef {import('./matcher.js').State} State */
/** A format as the settings have it. @typedef {{ schema: object | boolean | string } | { regex: string } | { grammar: string }} Given */

const HINT = 'an object with one of schema (of JSON), regex, and grammar (GBNF)';
const KINDS = ['schema', 'regex', 'grammar'];

export class Formats {
  /**
   * Throws InvalidInput for a tokenizer or a session that does not fit.
   * @param {import('./vocabulary.js').Tokens | undefined} tokenizer of @huggingface/tokenizers or transformers.js @param {readonly number[]} stopTokens those that may follow a complete text
   * @param {number} words of a mask; 0 if the session samples without masks @param {typeof Own} InvalidInput the class of errors
   */
  constructor(tokenizer, stopTokens, words, InvalidInput) {
    if (!words) {
      const hint = 'create the session with TextGenerator.options(); a compiled Program needs sampleMasks, a model a fixed number of tokens';
      throw new InvalidInput('this model cannot be bound to a format: its session has no masks', { hint });
    }
    this.InvalidInput = InvalidInput;
    this.vocabulary = this.typed(() => new Vocabulary(tokenizer, stopTokens));
    this.words = words;
    /** Automata of formats, by their texts. @type {Map<string, Automaton>} */
    this.known = new Map();
  }

  /** Turns errors of this bundle's InvalidInput into those of the package's class, which callers catch. @template T @param {() => T} work @returns {T} */
  typed(work) {
    try {
      return work();
    } catch (error) {
      if (error instanceof RangeError) throw new this.InvalidInput(`the format is refused: ${error.message}`, { hint: 'fewer parts in one another' });
      throw error instanceof Own ? new this.InvalidInput(error.detail, { hint: error.hint }) : error;
    }
  }

  /** Begins texts of a format. Throws InvalidInput for a format that is damaged or not known. @param {Given} given @returns {() => Format} */
  read(given) {
    const { InvalidInput } = this;
    const entries = typeof given === 'object' && given ? Object.entries(given) : [];
    const [[kind, of] = []] = entries;
    if (entries.length !== 1 || !kind || !KINDS.includes(kind)) throw new InvalidInput(`format is ${JSON.stringify(given)}`, { hint: HINT });
    const key = this.typed(() => JSON.stringify(given));
    const automaton = this.known.get(key) ?? this.typed(() => automatonOf(kind, of));
    this.known.clear();
    this.known.set(key, automaton); // the states of the last format stay
    if (automaton.start.isComplete && !automaton.start.stacks.length) throw new InvalidInput('the format allows only an empty text', { hint: HINT });
    return () => this.format(automaton);
  }

  /** A text that begins, or goes on from a state. @param {Automaton} automaton @returns {Format} */
  format(automaton, state = automaton.start) {
    const { InvalidInput } = this;
    const maskOf = (/** @type {State} */ at) => {
      const mask = this.vocabulary.mask(automaton, at, this.words);
      if (!mask.some(Boolean)) throw new InvalidInput('no token of this model continues the format');
      return /** @type {number[]} */ (/** @type {unknown} */ (mask));
    };
    const masks = (/** @type {number[]} */ drafted) => {
      const found = [maskOf(state)];
      let at = /** @type {State | null} */ (state);
      for (const token of drafted) {
        at = at && this.after(automaton, at, token);
        if (!at?.stacks.length) break;
        found.push(maskOf(at));
      }
      return found;
    };
    const take = (/** @type {number} */ token) => {
      if (state.isComplete && this.vocabulary.stopTokens.includes(token)) return true;
      const next = this.after(automaton, state, token);
      if (!next) throw new InvalidInput(`the model gave token ${token}, which the format forbids`, { hint: 'are the scores of all other tokens NaN or -Infinity?' });
      state = next;
      return !next.stacks.length;
    };
    return new Format(masks, take, () => this.format(automaton, state));
  }

  /** @param {Automaton} automaton @param {State} state @param {number} token @returns {State | null} null: the format forbids it, or the text has ended */
  after(automaton, state, token) {
    const bytes = this.vocabulary.spelled.get(token);
    let at = /** @type {State | null} */ (bytes?.length ? state : null);
    for (const byte of bytes ?? []) at = at && automaton.after(at, byte);
    return at;
  }
}

/** @param {string} kind @param {unknown} given */
function automatonOf(kind, given) {
  if (kind === 'schema') {
    const { rules, root } = readSchema(typeof given === 'string' ? parsed(given) : given);
    return new Automaton(rules, root);
  }
  if (typeof given !== 'string') throw new Own(`the ${kind} of the format is refused: a text is expected, not ${JSON.stringify(given)}`, { hint: HINT });
  const text = [...given];
  const rules = kind === 'regex' ? new Map([[ROOT, readRegex(given)]]) : readGrammar(text, text.map((c) => c.codePointAt(0) ?? 0));
  return new Automaton(rules, ROOT);
}

/** @param {string} schema */
function parsed(schema) {
  try {
    return JSON.parse(schema);
  } catch (cause) {
    throw new Own(`the schema of the format is refused: ${/** @type {Error} */ (cause).message}`, { hint: HINT, cause });
  }
}
