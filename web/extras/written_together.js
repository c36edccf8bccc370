// Texts that the same runs of a decoder continue. Twin of pyruntime/api/text_generator.py.

import { leftPadded, notTogether, penalisedLast } from '../runtime/generation.js';
import { samplingFeeds } from './decoder.js';

/** @typedef {{ isEnded: boolean, out: { tokens: number[] }, add: (token: number) => unknown }} Text */
/** @typedef {{ maxTokens: number, how: import('./decoder.js').Sampling, numbers: (start: number, count: number) => number[], signal?: AbortSignal }} Settings */

/**
 * Continues each prompt's text. Prompts of different lengths are padded on the left, which a mask hides.
 * @param {import('./decoder.js').Decoder} decoder @param {number[][]} prompts @param {readonly Text[]} texts @param {Settings} settings
 */
export async function writeTogether(decoder, prompts, texts, { maxTokens, how, numbers, signal }) {
  const { layout, parts: { InvalidInput } } = decoder;
  const refused = notTogether(layout, prompts);
  if (refused) throw new InvalidInput(refused, { hint: 'generate one prompt after the other' });
  const mask = leftPadded(prompts.map((tokens) => tokens.map(() => 1)));
  let fresh = leftPadded(prompts);
  decoder.start(prompts.length);
  try {
    for (let n = 0; n < maxTokens && !texts.every(({ isEnded }) => isEnded); n++) {
      const rows = Math.min(layout.positions, fresh[0].length);
      const random = numbers(n * texts.length, texts.length).flatMap((number) => [...new Array(rows - 1).fill(0), number]);
      const written = prompts.map((tokens, row) => [...tokens, ...texts[row].out.tokens]);
      const pairs = how.repetitionPenalty === 1 ? [] : penalisedLast(rows, written);
      const found = await decoder.run({
        ...decoder.textFeeds(fresh, mask),
        ...samplingFeeds(how),
        random: { dims: [texts.length, rows], values: random },
        repeated: { dims: [pairs.length / 2, 2], values: pairs },
      }, signal);
      fresh = texts.map((_, row) => [Number(found.data[row * rows + rows - 1])]);
      texts.forEach((text, row) => text.isEnded || text.add(fresh[row][0]));
      mask.forEach((row) => row.push(1));
    }
  } finally {
    decoder.restart();
  }
}
