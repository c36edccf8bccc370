// Which tokens may follow in a state: the walk through the tree of tokens, which passes over branches, against each token byte by byte.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ROOT, readGrammar } from '../../web/runtime/grammar.js';
import { readSchema } from '../../web/extras/formats/json_schema.js';
import { Automaton } from '../../web/extras/formats/matcher.js';
import { readRegex } from '../../web/extras/formats/regex.js';
import { Vocabulary } from '../../web/extras/formats/vocabulary.js';

const TEXT = 'the cat_9 - Aé漢字😀 "q\\n\n\u007f~}, caé漢 THE9';
const isPlain = (byte) => (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte !== 0xAD);
const others = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => !isPlain(byte));
const spell = (byte) => String.fromCharCode(isPlain(byte) ? byte : 256 + others.indexOf(byte)); // as GPT-2

/** Tokens: all bytes, and all pieces of the text up to nine bytes, so that some begin or end within a character, and invalid ones. */
function vocabulary() {
  const bytes = [...new TextEncoder().encode(TEXT)];
  const pieces = bytes.flatMap((_, at) => Array.from({ length: 9 }, (_, n) => bytes.slice(at, at + n + 1)));
  const all = [...Array.from({ length: 256 }, (_, byte) => [byte]), ...pieces, [0xE6, 0x61], [0x61, 0xC3, 0x61], [0xED, 0xA0, 0x80], [0xC0, 0x80], [0x61, 0xF5]];
  const words = new Map([...new Set(all.map((token) => token.map(spell).join('')))].map((word, n) => [word, n]));
  return new Vocabulary({ get_vocab: () => words, get_added_tokens_decoder: () => new Map(), decoder: { config: { type: 'ByteLevel' } } }, []);
}

const regex = (text) => new Automaton(new Map([[ROOT, readRegex(text)]]), ROOT);
const grammar = (text) => new Automaton(readGrammar([...text], [...text].map((c) => c.codePointAt(0))), ROOT);
const schema = (given) => {
  const { rules, root } = readSchema(given);
  return new Automaton(rules, root);
};
const FORMATS = {
  'a string': [schema({ type: 'string' }), '"the é'],
  'up to three characters': [schema({ type: 'string', maxLength: 3 }), '"caé'],
  'up to eight': [schema({ type: 'string', maxLength: 8 }), '"the ca漢'],
  'two or four and more': [schema({ type: 'string', anyOf: [{ maxLength: 2 }, { minLength: 4 }] }), '"cat_'],
  'any value': [schema(true), '{"the": ["a'],
  'small letters and spaces': [regex('[a-z ]{3,12}'), 'the c'],
  'words': [regex('\\w+(?: \\w+)*'), 'cat_9 THE'],
  'no digits': [regex('[^0-9]*'), 'é漢 "'],
  'letters that lead to other states': [regex('(?:[a-m]x|[n-z ]y)*z'), 'cxty'],
  'characters above U+0800': [regex('[\\u0800-\\uffff]{2,9}'), '漢字'],
  'an alternation': [grammar('root ::= "the " [a-z]* | [^\\n]+ "9"'), 'the '],
};

test('tokens that a branch passes over are those that each byte allows', () => {
  const words = vocabulary();
  const size = Math.ceil(words.spelled.size / 32);
  let passed = 0;
  for (const [name, [automaton, text]] of Object.entries(FORMATS)) {
    let state = automaton.start;
    for (const byte of [null, ...new TextEncoder().encode(text)]) {
      state = byte === null ? state : automaton.after(state, byte);
      const mask = words.mask(automaton, state, size);
      for (const [token, bytes] of words.spelled) {
        const allowed = Boolean([...bytes].reduce((at, one) => at && automaton.after(at, one), state));
        assert.equal(Boolean(mask[token >> 5] >>> (token & 31) & 1), allowed, `${name}: ${[...bytes]} behind ${text}, ${byte}`);
      }
      passed += state.behind.filter(Boolean).length;
    }
  }
  assert.ok(passed > 50); // states behind which kinds of characters need no look
});

test('what a decoder puts in place of a text is no pattern', () => {
  const decoder = { config: { type: 'Replace', pattern: { String: '_' }, content: '$&' } };
  const words = new Vocabulary({ get_vocab: () => new Map([['a_', 0]]), get_added_tokens_decoder: () => new Map(), decoder }, []);
  assert.equal(new TextDecoder().decode(words.spelled.get(0)), 'a$&');
});
