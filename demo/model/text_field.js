// A field for text: a tokenizer turns it into the model's inputs of tokens. Without a tokenizer, ids can be typed.

import { make, messageOf } from '../common.js';
import { fill, tokenInputs } from './token_inputs.js';

/** @typedef {import('@huggingface/tokenizers').Tokenizer} Tokenizer */
/** @typedef {import('pyruntime').Tensor} Tensor */
/** @typedef {import('./token_inputs.js').Input} Input */
/** @typedef {import('./token_inputs.js').Tokens} Tokens */

const MISSING = 'To type text, choose the tokenizer.json that was published with this model. Without it, type token ids: 101, 7592, 102.';
const PADS = ['[PAD]', '<pad>', '<|pad|>', '<|padding|>', '<|endoftext|>'];
const SHOWN = 5; // likeliest tokens

/** The field, or null for models without inputs of tokens. @param {readonly Input[]} inputs @param {(filled: ReturnType<typeof fill>['inputs']) => void} take */
export function textField(inputs, take) {
  const found = tokenInputs(inputs);
  return found && new TextField(found, take);
}

export class TextField {
  /** @param {NonNullable<ReturnType<typeof tokenInputs>>} found @param {(filled: ReturnType<typeof fill>['inputs']) => void} take gets no inputs once the field is empty */
  constructor(found, take) {
    this.found = found;
    this.take = take;
    /** @type {Tokenizer | null} */
    this.tokenizer = null;
    this.pad = 0;
    /** The tokens of the inputs. @type {number[]} */
    this.ids = [];
    /** Called with a tokenizer.json that the visitor has chosen here. @type {(file: File) => unknown} */
    this.onTokenizer = () => {};
    this.text = /** @type {HTMLTextAreaElement} */ (make('textarea', { id: 'text', rows: 2, 'aria-describedby': 'text-told' }));
    this.second = /** @type {HTMLInputElement} */ (make('input', { id: 'second-text', type: 'text', placeholder: 'none' }));
    this.label = make('label', { for: 'text' }, 'Token ids');
    this.told = make('p', { id: 'text-told', class: 'soft small', role: 'status' }, MISSING);
    this.pair = make('label', { class: 'small', hidden: '' }, 'Second text of a pair ', this.second);
    this.node = make('div', { class: 'text-field' }, make('div', { class: 'row' }, this.label, this.chooser()), this.text, this.pair, this.told);
    for (const field of [this.text, this.second]) field.addEventListener('input', () => this.update());
  }

  /** @returns {HTMLElement} */
  chooser() {
    const file = /** @type {HTMLInputElement} */ (make('input', { type: 'file', accept: '.json,application/json', 'aria-label': 'tokenizer.json' }));
    file.addEventListener('change', async () => {
      const [chosen] = file.files ?? [];
      file.value = '';
      if (chosen && await this.use(chosen)) await this.onTokenizer(chosen);
    });
    return make('span', { class: 'input' }, make('label', { class: 'button small' }, 'Choose tokenizer.json', file));
  }

  /** Whether text is read with this tokenizer from now on. @param {Blob} table tokenizer.json */
  async use(table) {
    try {
      const [{ Tokenizer }, json] = await Promise.all([import('@huggingface/tokenizers'), table.text()]);
      const config = JSON.parse(json);
      this.tokenizer = new Tokenizer(config, { clean_up_tokenization_spaces: false });
      this.pad = padOf(this.tokenizer, config);
      this.label.textContent = 'Text';
      this.pair.hidden = [...this.found.roles.values()].includes('cache'); // decoders continue one text
      this.update();
      return true;
    } catch (error) {
      this.told.textContent = `This is no tokenizer.json that can be read: ${messageOf(error)}`;
      return false;
    }
  }

  /** Fills the inputs. */
  update() {
    try {
      const tokens = this.tokenizer ? this.encode(this.tokenizer) : typedIds(this.text.value);
      this.ids = tokens.ids;
      const { inputs, told } = tokens.ids.length ? fill(this.found, tokens) : { inputs: new Map(), told: [this.tokenizer ? 'Type a text: until then the inputs are random.' : MISSING] };
      this.take(inputs);
      this.told.textContent = [...told, ...tokens.notes].join('; ');
    } catch (error) {
      this.ids = [];
      this.take(new Map());
      this.told.textContent = messageOf(error);
    }
  }

  /** @param {Tokenizer} tokenizer @returns {Tokens & { notes: string[] }} */
  encode(tokenizer) {
    const [text, second] = [this.text.value, this.second.value];
    if (!text) return { ids: [], notes: [] };
    const { ids, token_type_ids: types } = tokenizer.encode(text, { text_pair: second || null, return_token_type_ids: true });
    const known = ids.flatMap((id, n) => (id === undefined ? [] : [n])); // undefined: the vocabulary lacks this character
    const marks = tokenizer.encode('').ids;
    let tail = 0;
    while (tail < marks.length && marks.at(-1 - tail) === ids.at(-1 - tail)) tail++;
    const lost = ids.length - known.length;
    const notes = lost ? [`${lost} left out, because the vocabulary lacks ${lost === 1 ? 'it' : 'them'}`] : [];
    return { ids: known.map((n) => ids[n]), types: types && known.map((n) => types[n]), pad: this.pad, tail, notes };
  }

  /**
   * For outputs that score the whole vocabulary: the likeliest tokens at the mask's place, else after the last token.
   * @param {Record<string, unknown>} results @returns {HTMLElement[]}
   */
  readings(results) {
    const { tokenizer, ids } = this;
    const words = tokenizer?.get_vocab().size ?? Infinity;
    if (!tokenizer || !ids.length) return [];
    const mask = ids.findIndex((id) => /^(\[MASK\]|<mask>)$/.test(tokenizer.id_to_token(id) ?? ''));
    const place = mask < 0 ? 'After the text' : 'At the mask';
    return Object.entries(results).flatMap(([name, value]) => {
      const { type, dims = [], data } = /** @type {Tensor} */ (value);
      if (type !== 'float32' || dims.length !== 3 || dims[2] < words) return [];
      const row = Math.min(mask < 0 ? ids.length - 1 : mask, dims[1] - 1);
      const scores = /** @type {Float32Array} */ (data).subarray(row * dims[2], (row + 1) * dims[2]);
      const shown = likeliest(scores).map(([id, share]) => `“${tokenizer.decode([id])}” ${Math.round(100 * share)} %`);
      return [make('p', { class: 'small readings' }, `${place}, ${name} finds likeliest: ${shown.join(', ')}`)];
    });
  }
}

/** @param {string} text @returns {Tokens & { notes: string[] }} */
function typedIds(text) {
  const ids = text.split(/[\s,;[\]]+/).filter(Boolean).map(Number);
  if (ids.every((id) => Number.isInteger(id) && id >= 0)) return { ids, notes: [] };
  throw new Error(`Ids are whole numbers. ${MISSING}`);
}

/** @param {Tokenizer} tokenizer @param {{ padding?: { pad_id?: number } }} config */
function padOf(tokenizer, { padding }) {
  return padding?.pad_id ?? PADS.map((token) => tokenizer.token_to_id(token)).find((id) => id !== undefined) ?? 0;
}

/** Ids of the highest scores with their probabilities. @param {Float32Array} scores @returns {[number, number][]} */
function likeliest(scores) {
  const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const sum = scores.reduce((total, score) => total + Math.exp(score - top), 0);
  const order = [...scores.keys()].sort((a, b) => scores[b] - scores[a]).slice(0, SHOWN);
  return order.map((id) => [id, Math.exp(scores[id] - top) / sum]);
}
