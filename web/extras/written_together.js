// Texts that the same runs of a decoder continue. Twin of TextGenerator._together in pyruntime/api/text_generator.py.

import { leftPadded, penalisedLast } from '../runtime/generation.js';
import { samplingFeeds } from './decoder.js';

/** @typedef {import('./text_generator.js').TextGenerator} TextGenerator */

/**
 * Prompts of different lengths are padded on the left, which a mask hides. The draft is not used.
 * @param {TextGenerator} writer @param {readonly import('./text_generator.js').Prompt[]} prompts
 * @param {import('./text_generator.js').Settings} settings
 */
export async function writtenTogether(writer, prompts, settings) {
  const { model } = writer;
  const { InvalidInput } = writer.parts;
  if (!['attention_mask', 'position_ids'].every((name) => model.layout.fed.includes(name))) {
    const hint = 'generate one prompt after the other';
    throw new InvalidInput('prompts together need the inputs attention_mask and position_ids', { hint });
  }
  const { maxTokens, stop, signal, how, numbers } = writer.read(settings);
  const begun = prompts.map((prompt) => writer.encoded(prompt));
  const texts = begun.map((tokens) => writer.text(stop, tokens));
  const mask = leftPadded(begun.map((tokens) => tokens.map(() => 1)));
  let fresh = leftPadded(begun);
  model.start(prompts.length);
  try {
    for (let n = 0; n < maxTokens && !texts.every(({ isEnded }) => isEnded); n++) {
      const rows = Math.min(model.layout.positions, fresh[0].length);
      const random = numbers(n * texts.length, texts.length).flatMap((number) => [...new Array(rows - 1).fill(0), number]);
      const written = begun.map((tokens, row) => [...tokens, ...texts[row].out.tokens]);
      const pairs = how.repetitionPenalty === 1 ? [] : penalisedLast(rows, written);
      const found = await model.run({
        ...model.textFeeds(fresh, mask),
        ...samplingFeeds(how),
        random: { dims: [texts.length, rows], values: random },
        repeated: { dims: [pairs.length / 2, 2], values: pairs },
      }, signal);
      fresh = texts.map((_, row) => [Number(found.data[row * rows + rows - 1])]);
      texts.forEach((text, row) => text.isEnded || text.add(fresh[row][0]));
      mask.forEach((row) => row.push(1));
    }
  } finally {
    model.restart();
  }
  for (const text of texts) text.end();
  return texts.map(({ out }) => out);
}
