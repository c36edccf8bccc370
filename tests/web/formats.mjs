// Texts that page formats allow: `node formats.mjs` reads requests from its input, and writes an answer for each.
// A request: { format, seed, count, most, texts }; an answer: { texts, accepted, milliseconds } or { error }.

import { readFileSync } from 'node:fs';
import { Tokenizer } from '@huggingface/tokenizers';
import { InvalidInput } from '../../web/common/errors.js';
import { Formats } from '../../web/extras/formats/formats.js';
import { sentence } from './sentences.mjs';

const { tokens, requests } = JSON.parse(readFileSync(0, 'utf8'));
const decoder = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
const model = { type: 'BPE', vocab: Object.fromEntries(tokens.map((text, n) => [text, n])), merges: [] };
const tokenizer = new Tokenizer({ model, decoder, added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null }, { clean_up_tokenization_spaces: false });
const words = Math.ceil(tokens.length / 32);
const formats = new Formats(tokenizer, [], words, InvalidInput);
const times = [];

/** A generator of random numbers below n. */
function dice(seed) {
  let state = seed;
  return (n) => Math.floor(((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32) * n);
}

const isSet = (mask, token) => (mask[token >> 5] >>> (token & 31)) & 1;

/** One of the tokens that may follow; without lists of them, whose garbage would be collected while a mask is computed. */
function drawn(form, roll) {
  const [start, used] = [performance.now(), process.cpuUsage()];
  const [mask] = form.masks([]);
  const passed = performance.now() - start;
  const { user, system } = process.cpuUsage(used);
  times.push(Math.min(passed, (user + system) / 1e3)); // other processes do not count
  let count = 0;
  for (let token = 0; token < tokens.length; token++) count += isSet(mask, token);
  let left = roll(count);
  for (let token = 0; ; token++) if (isSet(mask, token) && left-- === 0) return token;
}

/** A random text; null if it has no end after `most` tokens. */
function written(begin, most, roll) {
  const form = begin();
  const found = [];
  for (let n = 0; n < most; n++) {
    found.push(drawn(form, roll));
    if (form.take(found.at(-1))) return tokenizer.decode(found);
  }
  return null;
}

/** Whether a text is complete. */
function accepts(automaton, text) {
  let state = automaton.start;
  for (const byte of new TextEncoder().encode(text)) state = state && automaton.after(state, byte);
  return Boolean(state?.isComplete);
}

const answers = requests.map(({ format, seed = 1, count = 0, most = 400, texts = [] }) => {
  try {
    times.length = 0;
    const begin = formats.read(format);
    const roll = dice(seed);
    const found = Array.from({ length: count }, () => written(begin, most, roll));
    const [automaton] = formats.known.values();
    return { texts: found, accepted: texts.map((text) => accepts(automaton, text)), milliseconds: [...times] };
  } catch (error) {
    if (!error.type) throw error;
    return { error: sentence(error) };
  }
});
console.log(JSON.stringify(answers));
