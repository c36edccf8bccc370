// The characters of a text as numbers. Those that the network has no number for become one replacement character.

export const CHARACTERS = 128; // of the network
const UNKNOWN = '\uFFFD';

export class Alphabet {
  /** The most frequent characters of a text, or those of an earlier one in their order. @param {string | string[]} source */
  constructor(source) {
    this.characters = Array.isArray(source) ? source : [UNKNOWN, ...frequent(source)];
    this.numbers = new Map(this.characters.map((character, n) => [character, n]));
  }

  /** @param {string} text */
  encode(text) {
    return Array.from(text, (character) => this.numbers.get(character) ?? 0);
  }

  /** @param {number[]} numbers */
  decode(numbers) {
    return numbers.map((n) => this.characters[n] ?? UNKNOWN).join('');
  }

  /** A tokenizer.json, with which other programs run the network: byte pair encoding without any pair. */
  tokenizer() {
    return JSON.stringify({
      version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null, post_processor: null,
      pre_tokenizer: { type: 'Split', pattern: { Regex: '\\n| ?[^ \\n]+| ' }, behavior: 'Isolated', invert: false },
      decoder: { type: 'Fuse' },
      model: { type: 'BPE', dropout: null, unk_token: UNKNOWN, fuse_unk: false, byte_fallback: false, vocab: Object.fromEntries(this.numbers), merges: [] },
    });
  }
}

/** @param {string} text */
function frequent(text) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const character of text) counts.set(character, (counts.get(character) ?? 0) + 1);
  counts.delete(UNKNOWN);
  return [...counts].sort(([, a], [, b]) => b - a).slice(0, CHARACTERS - 1).map(([character]) => character);
}
