// The bytes of a tokenizer's tokens, and which tokens may follow in a state of an automaton.

import { InvalidInput } from '../../common/errors.js';

/** @typedef {import('./matcher.js').Automaton} Automaton */
/** @typedef {import('./matcher.js').State} State */
/** A decoder as tokenizer.json has it. @typedef {{ type: string, decoders?: Step[], pattern?: { String?: string }, content?: string, replacement?: string }} Step */
/** Of @huggingface/tokenizers; that of transformers.js has one. @typedef {{ get_vocab?: (all: boolean) => Map<string, number>, decoder?: { config?: Step } | null,
 *   get_added_tokens_decoder?: () => Map<number, { content: string, special: boolean }>, _tokenizer?: Tokens }} Tokens */

const NONE = { hint: 'a Tokenizer of @huggingface/tokenizers, one of transformers.js, or TextGenerator.create with a file' };
const KNOWN = ['ByteLevel', 'ByteFallback', 'Fuse', 'Metaspace', 'Replace', 'Strip'];

export class Vocabulary {
  /** Nodes of a tree of all tokens, in depth-first order: a byte, its depth, the node behind its branch. @type {number[]} */
  bytes = [];
  /** @type {number[]} */
  depths = [];
  /** @type {number[]} */
  ends = [];
  /** Tokens that end at a node. @type {number[][]} */
  tokens = [];

  /**
   * Throws InvalidInput for a tokenizer whose tokens are not known.
   * @param {Tokens | undefined} tokenizer @param {readonly number[]} stopTokens those that may follow a complete text
   */
  constructor(tokenizer, stopTokens) {
    this.spelled = spelledTokens(tokenizer);
    this.stopTokens = stopTokens;
    for (const token of stopTokens) this.spelled.delete(token);
    const sorted = [...this.spelled].filter(([, bytes]) => bytes.length).sort(([, a], [, b]) => compare(a, b));
    /** Nodes of the token before. @type {number[]} */
    let path = [];
    let before = new Uint8Array();
    for (const [token, bytes] of sorted) {
      let shared = 0;
      while (shared < before.length && before[shared] === bytes[shared]) shared++;
      path = path.slice(0, shared);
      for (let depth = shared; depth < bytes.length; depth++) path.push(this.add(bytes[depth], depth));
      for (const node of path) this.ends[node] = this.bytes.length;
      this.tokens[path[path.length - 1]].push(token);
      before = bytes;
    }
  }

  /** @param {number} byte @param {number} depth */
  add(byte, depth) {
    this.depths.push(depth);
    this.ends.push(0);
    this.tokens.push([]);
    return this.bytes.push(byte) - 1;
  }

  /** A bit for each token. @param {Automaton} automaton @param {State} state @param {number} words */
  mask(automaton, state, words) {
    if (state.mask) return state.mask;
    const { bytes, depths, ends, tokens } = this;
    const mask = new Int32Array(words);
    const set = (/** @type {number} */ token) => {
      if (token >> 5 < words) mask[token >> 5] |= 1 << (token & 31);
    };
    const path = [state];
    for (let node = 0; node < bytes.length;) {
      const depth = depths[node];
      const next = automaton.after(path[depth], bytes[node]);
      if (next) {
        path[depth + 1] = next;
        for (const token of tokens[node]) set(token);
        node++;
      } else {
        node = ends[node];
      }
    }
    if (state.isComplete) for (const token of this.stopTokens) set(token);
    return (state.mask = mask);
  }
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
    return utf8.encode(swaps.reduce((swapped, [before, after]) => swapped.replaceAll(before, after), text));
  };
}

/** GPT-2's characters for bytes: printable ones are themselves, others follow U+0100. */
function byteLevel() {
  const isPlain = (/** @type {number} */ byte) => (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte !== 0xAD);
  const all = Array.from({ length: 256 }, (_, byte) => byte);
  const others = all.filter((byte) => !isPlain(byte));
  return new Map(all.map((byte) => [String.fromCharCode(isPlain(byte) ? byte : 256 + others.indexOf(byte)), byte]));
}
