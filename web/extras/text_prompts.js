// Prompts and texts as tokens: the tokenizer and the chat template of a generator.

import { InvalidInput as Own } from '../common/errors.js';
import { Text } from '../runtime/writing.js';
import { optionsOf } from '../common/records.js';
import { partsOf } from './parts.js';
import { tokenList } from './text_settings.js';

/** chat_template, bos_token, eos_token: of transformers.js alone.
 * @typedef {{ encode: (text: string, options?: object) => any, decode: (tokens: number[], options?: object) => string, chat_template?: string, bos_token?: string,
 *   eos_token?: string }} Tokenizer */
/** A message of a chat, and what else templates know of one. @typedef {{ role: string, content?: unknown } & Record<string, unknown>} Message */
/** @typedef {string | readonly number[] | readonly Message[]} Prompt */
/** @typedef {import('./chat_files.js').Templates} Templates */
/** @typedef {import('./chat_files.js').FileSource} FileSource */

export class Prompts {
  /**
   * Throws InvalidInput for what is no tokenizer.
   * @param {Tokenizer | undefined} tokenizer @param {string | Templates | undefined} chatTemplate @param {number | readonly number[] | undefined} stopTokens
   * @param {typeof import('../common/errors.js').InvalidInput} InvalidInput the class of errors
   */
  constructor(tokenizer, chatTemplate, stopTokens, InvalidInput) {
    if (tokenizer && !(/** @type {unknown} */ (tokenizer.encode) && /** @type {unknown} */ (tokenizer.decode))) {
      throw new InvalidInput(`the tokenizer is ${typeof tokenizer === 'string' ? `'${tokenizer}'` : 'another object'}`, { hint: 'an object with encode(text) and decode(tokens); TextGenerator.create takes files' });
    }
    this.InvalidInput = InvalidInput;
    this.tokenizer = tokenizer;
    this.chatTemplate = chatTemplate ?? tokenizer?.chat_template;
    this.stopTokens = stopTokens === undefined || stopTokens === null ? specialTokens(tokenizer) : tokenList('stopTokens', typeof stopTokens === 'number' ? [stopTokens] : stopTokens, InvalidInput);
  }

  /** Tokens, or messages as tokens. @param {Prompt} prompt */
  async rendered(prompt) {
    return isMessages(prompt) ? this.applyChatTemplate(prompt) : prompt;
  }

  /**
   * The messages of a chat as tokens, or as a text if `tokenize` is false. variables: others that the template knows.
   * @param {readonly Message[]} messages @param {{ tools?: readonly unknown[], addGenerationPrompt?: boolean, tokenize?: boolean, variables?: Record<string, unknown> } | null} [options]
   * @returns {Promise<string | number[]>}
   */
  async applyChatTemplate(messages, options) {
    const { InvalidInput } = this;
    /** @type {{ tools?: readonly unknown[], addGenerationPrompt: boolean, tokenize: boolean, variables: Record<string, unknown> }} */
    const defaults = { tools: undefined, addGenerationPrompt: true, tokenize: true, variables: {} };
    const { tools, addGenerationPrompt, tokenize, variables } = optionsOf(options, defaults, 'applyChatTemplate', InvalidInput);
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

  /** A text that follows the prompt, up to one of these stops. @param {string | readonly string[]} stop @param {number[]} prompt @param {import('../runtime/writing.js').Format | null} form */
  text(stop, prompt, form) {
    const stops = typeof stop === 'string' ? [stop] : Array.isArray(stop) ? [...stop] : [NaN];
    if (!stops.every((one) => typeof one === 'string')) throw new this.InvalidInput(`stop is ${stop}`, { hint: 'a text or a list of texts is expected' });
    if (stops.length && !this.tokenizer) throw new this.InvalidInput('stop needs a tokenizer', { hint: 'stopTokens end a text without one' });
    const decode = (/** @type {number[]} */ tokens) => this.tokenizer?.decode(tokens, { skip_special_tokens: true }) ?? '';
    return new Text(prompt, decode, stops, this.stopTokens, () => performance.now(), form);
  }

  /** @param {Prompt} prompt @param {{ add_special_tokens: boolean }} [how] of the tokenizer @returns {number[]} */
  encoded(prompt, how) {
    const { InvalidInput } = this;
    let tokens = prompt;
    if (typeof prompt === 'string') {
      if (!this.tokenizer) throw new InvalidInput('a text needs a tokenizer', { hint: 'give one, or give tokens' });
      const encoded = this.tokenizer.encode(prompt, how);
      tokens = encoded.ids ?? encoded;
    }
    const found = tokenList('the prompt', tokens, InvalidInput);
    if (!found.length) throw new InvalidInput('the prompt has no tokens', { hint: "begin with the model's start token" });
    return found;
  }
}

/** @param {Prompt | readonly Prompt[]} prompt @returns {prompt is readonly Prompt[]} */
export const isList = (prompt) => typeof prompt !== 'string' && prompt?.length > 0 && !isMessages(prompt) && (typeof prompt[0] === 'string' || typeof prompt[0] === 'object');

/** @param {unknown} prompt @returns {prompt is readonly Message[]} */
export const isMessages = (prompt) => Array.isArray(prompt) && prompt[0]?.role !== undefined;

const TOKENIZER_HINT = 'a tokenizer.json or a GGUF file is expected';
const TEMPLATE_HINT = 'give chatTemplate: a Jinja text; TextGenerator.create also takes a chat_template.jinja or a tokenizer_config.json';

/** Whether it is a file, and neither a tokenizer nor a Jinja text. @param {Tokenizer | FileSource | null | undefined} given @returns {given is FileSource} */
const isFile = (given) => (typeof given === 'string' ? !given.includes('{') : typeof given === 'object' && given !== null && !('encode' in given));

/** Loaded when it is first needed: it has two libraries. */
const chatFiles = () => import('./chat_files.js');

/** @param {Tokenizer | FileSource | null | undefined} given @returns {Promise<import('./chat_files.js').Found | null>} null: it is no file */
const readFile = async (given) => (isFile(given) ? (await chatFiles()).readChatFile(given) : null);

/**
 * The options tokenizer and chatTemplate of a generator, if they may be files, which are read while the session opens.
 * @param {import('./parts.js').Session | Promise<import('./parts.js').Session>} session
 * @param {Tokenizer | FileSource} tokenizer @param {string | FileSource | undefined} chatTemplate
 */
export async function readFiles(session, tokenizer, chatTemplate) {
  const reading = Promise.all([readFile(tokenizer), readFile(chatTemplate)]);
  reading.catch(() => {}); // its error is handled where it is awaited
  const { InvalidInput } = partsOf(await session);
  const [found, template] = await reading.catch((cause) => {
    throw new InvalidInput(`the tokenizer or the chat template cannot be read: ${messageOf(cause)}`, { cause });
  });
  if (found && !found.tokenizer) throw new InvalidInput(`there is no tokenizer in ${tokenizer}`, { hint: TOKENIZER_HINT });
  if (template && !Object.keys(template.templates.texts).length) throw new InvalidInput(`there is no chat template in ${chatTemplate}`, { hint: TEMPLATE_HINT });
  const own = /** @type {string | undefined} */ (chatTemplate); // a file was read
  return { tokenizer: found?.tokenizer ?? /** @type {Tokenizer} */ (tokenizer), chatTemplate: template?.templates ?? own ?? found?.templates };
}

/** The tokenizer in a file. Its errors are of this bundle's classes. @param {FileSource} file @returns {Promise<Tokenizer>} */
export async function readTokenizer(file) {
  const found = await readFile(file).catch((cause) => {
    throw new Own(`the tokenizer cannot be read: ${messageOf(cause)}`, { cause });
  });
  if (!found?.tokenizer) throw new Own(`there is no tokenizer in ${file}`, { hint: TOKENIZER_HINT });
  return found.tokenizer;
}

/** @param {unknown} error */
const messageOf = (error) => /** @type {{ message?: string }} */ (error)?.message ?? String(error);

/** What a template knows of a tokenizer of transformers.js. @param {Tokenizer} [tokenizer] @returns {Record<string, string>} */
const tokensOf = ({ bos_token = '', eos_token = '' } = /** @type {Tokenizer} */ ({})) => ({ bos_token, eos_token });

/** The special tokens of a tokenizer of @huggingface/tokenizers or transformers.js. @param {any} tokenizer @returns {number[]} */
function specialTokens(tokenizer) {
  const added = [...tokenizer?.get_added_tokens_decoder?.() ?? []].filter(([, { special }]) => special);
  return [...added.map(([token]) => Number(token)), ...tokenizer?.all_special_ids ?? []];
}
