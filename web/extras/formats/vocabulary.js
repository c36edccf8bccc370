// The bytes of a tokenizer's tokens, and which tokens may follow in a state of an automaton.

import { InvalidInput } from '../../common/errors.js';
import { kindOf } from './utf8.js';

/** @typedef {import('./matcher.js').Automaton} Automaton */
/** @typedef {import('./matcher.js').State} State */
/** A decoder as tokenizer.json has it. @typedef {{ type: string, decoders?: Step[], pattern?: { String?: string }, content?: string, replacement?: string }} Step */
/** Of @huggingface/tokenizers; that of transformers.js has one. @typedef {{ get_vocab?: (all: boolean) => Map<string, number>, decoder?: { config?: Step } | null,
 *   get_added_tokens_decoder?: () => Map<number, { content: string, special: boolean }>, _tokenizer?: Tokens }} Tokens */

const NONE = { hint: 'a Tokenizer of @huggingface/tokenizers, one of transformers.js, or TextGenerator.create with a file' };
const KNOWN = ['ByteLevel', 'ByteFallback', 'Fuse', 'Metaspace', 'Replace', 'Strip'];

export class Vocabulary {
  /**
   * Throws InvalidInput for a tokenizer whose tokens are not known.
   * @param {Tokens | undefined} tokenizer @param {readonly number[]} stopTokens those that may follow a complete text
   */
  constructor(tokenizer, stopTokens) {
    this.spelled = spelledTokens(tokenizer);
    this.stopTokens = stopTokens;
    for (const token of stopTokens) this.spelled.delete(token);
    const sorted = [...this.spelled].filter(([, bytes]) => bytes.length).sort(([, a], [, b]) => compare(a, b));
    this.sorted = Int32Array.from(sorted, ([token]) => token);
    this.tree = treeOf(sorted.map(([, bytes]) => bytes));
  }

  /** A bit for each token. @param {Automaton} automaton @param {State} state @param {number} words */
  mask(automaton, state, words) {
    if (state.mask) return state.mask;
    const { sorted, tree: { bytes, depths, ends, firsts, counts, kinds } } = this;
    const mask = new Int32Array(words);
    const set = (/** @type {number} */ token) => {
      if (token >> 5 < words) mask[token >> 5] |= 1 << (token & 31);
    };
    const path = [state];
    for (let node = 0; node < bytes.length;) {
      const depth = depths[node];
      const next = path[depth + 1] = /** @type {State} */ (automaton.after(path[depth], bytes[node]));
      const end = !next || automaton.takes(next, counts[node], kinds[node]) ? ends[node] : node + 1; // what is behind the branch needs no look
      if (next) for (let n = firsts[node]; n < firsts[end]; n++) set(sorted[n]);
      node = end;
    }
    if (state.isComplete) for (const token of this.stopTokens) set(token);
    return (state.mask = mask);
  }
}

/**
 * A tree of all tokens, as lists of its nodes in depth-first order: a byte, its depth, the node behind its branch, how many tokens are
 * before it; and of what tokens have behind its byte the most characters (Infinity if some are not plain) and their kinds, as bits.
 * @param {readonly Uint8Array[]} sorted bytes of tokens
 */
function treeOf(sorted) {
  const [bytes, depths, ends, firsts, counts, kinds] = /** @type {number[][]} */ ([[], [], [], [], [], []]);
  /** Nodes of the token before. @type {number[]} */
  let path = [];
  let before = /** @type {Uint8Array} */ (new Uint8Array());
  for (const [place, token] of sorted.entries()) {
    let shared = 0;
    while (shared < before.length && before[shared] === token[shared]) shared++;
    path.length = shared;
    for (let depth = shared; depth < token.length; depth++) {
      depths.push(depth);
      firsts.push(place);
      counts.push(0);
      kinds.push(0);
      path.push(bytes.push(token[depth]) - 1);
    }
    for (let depth = token.length - 1, end = token.length, count = 0, kind = 0; depth >= 0; depth--) {
      const node = path[depth];
      const isWhole = end === depth + 1; // no character begins before this node and ends behind it
      ends[node] = bytes.length;
      counts[node] = Math.max(counts[node], isWhole ? count : Infinity);
      kinds[node] |= kind;
      if (token[depth] >> 6 === 2) continue; // not the first byte of a character
      const found = kindOf(token.subarray(depth, end), end === token.length);
      [end, count, kind] = [depth, found < 0 ? Infinity : count + 1, kind | 1 << found];
    }
    before = token;
  }
  firsts.push(sorted.length);
  return { bytes: Uint8Array.from(bytes), depths, ends, firsts, counts, kinds };
}

/** @param {Uint8Array} a @param {Uint8Array} b */
function compare(a, b) {
  for (let n = 0; n < Math.min(a.length, b.length); n++) if (a[n] !== b[n]) return a[n] - b[n];
  return a.length - b.length;
}

/** The bytes of each token in the middle of a text; special tokens have none. @param {Tokens | undefined} given @returns {Map<number, Uint8Array<ArrayBuffer>>} */
function spelledTokens(given) {
  const tokenizer = given?._tokenizer ?? given; // of transformers.js
  if (typeof tokenizer?.get_vocab !== 'function' || typeof tokenizer.get_added_tokens_decoder !== 'function') throw new InvalidInput('a format needs the tokens of a tokenizer', NONE);
  const spell = speller(tokenizer.decoder?.config);
  const added = tokenizer.get_added_tokens_decoder();
  const utf8 = new TextEncoder();
  const found = new Map([...tokenizer.get_vocab(false)].map(([text, token]) => [token, spell(text)]));
  for (const [token, { content, special }] of added) found.set(Number(token), special ? new Uint8Array() : utf8.encode(content));
  return found;
}

/**
 * What gives the bytes of a token. Throws InvalidInput for decoders of other kinds.
 * @param {Step | undefined} decoder @returns {(text: string) => Uint8Array<ArrayBuffer>}
 */
function speller(decoder) {
  const steps = decoder?.type === 'Sequence' ? decoder.decoders ?? [] : decoder ? [decoder] : [];
  const kinds = steps.map(({ type }) => type);
  const unknown = kinds.filter((kind) => !KNOWN.includes(kind));
  if (unknown.length) throw new InvalidInput(`a format cannot use a tokenizer with the decoder ${unknown.join(', ')}`);
  const utf8 = new TextEncoder();
  if (kinds.includes('ByteLevel')) {
    const table = byteLevel();
    return (text) => {
      const bytes = [...text].map((c) => table.get(c) ?? -1);
      return bytes.includes(-1) ? utf8.encode(text) : Uint8Array.from(bytes);
    };
  }
  /** @type {[string, string][]} */
  const swaps = steps.flatMap(({ pattern, content = '' }) => (pattern?.String ? [[pattern.String, content]] : []));
  swaps.push(...steps.filter(({ type }) => type === 'Metaspace').map(({ replacement }) => /** @type {[string, string]} */ ([replacement ?? '▁', ' '])));
  return (text) => {
    const byte = kinds.includes('ByteFallback') && /^<0x([0-9A-F]{2})>$/.exec(text);
    if (byte) return Uint8Array.of(parseInt(byte[1], 16));
    return utf8.encode(swaps.reduce((swapped, [before, after]) => swapped.replaceAll(before, () => after), text));
  };
}

/** GPT-2's characters for bytes: printable ones are themselves, others follow U+0100. */
function byteLevel() {
  const isPlain = (/** @type {number} */ byte) => (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte !== 0xAD);
  const all = Array.from({ length: 256 }, (_, byte) => byte);
  const others = all.filter((byte) => !isPlain(byte));
  return new Map(all.map((byte) => [String.fromCharCode(isPlain(byte) ? byte : 256 + others.indexOf(byte)), byte]));
}
