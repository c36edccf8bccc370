// Which piece comes next.

/**
 * The likeliest at temperature 0; else one at random of the topK likeliest, and of those the fewest that have topP of
 * the probability.
 * @param {ArrayLike<number>} logits
 * @param {{ temperature: number, topK: number, topP: number }} how topK: 0 is all
 * @param {() => number} random from 0 to 1
 * @returns {number}
 */
export function choose(logits, { temperature, topK, topP }, random = Math.random) {
  const order = Array.from(logits, (_, n) => n).sort((a, b) => logits[b] - logits[a]);
  if (!temperature) return order[0];
  const few = order.slice(0, topK || order.length);
  const powers = few.map((n) => Math.exp((logits[n] - logits[order[0]]) / temperature));
  const all = powers.reduce((a, b) => a + b, 0);
  let [count, share] = [0, 0];
  while (count < few.length && share < topP * all) share += powers[count++];
  let left = random() * share;
  const found = powers.slice(0, count).findIndex((power) => (left -= power) < 0);
  return few[found < 0 ? Math.max(count - 1, 0) : found];
}
