// Runs a decoder whose caches stay on the GPU token by token, between which calls are counted.

const NAMES = [0, 1, 2, 3].flatMap((n) => [`${n}.key`, `${n}.value`]); // caches of llama_mini

/** By the number of positions in the caches at first. @type {Map<number, { ort: any, session: any, past: Record<string, any>, step: number, next: number[] }>} next: tokens that it is fed next */
const decoders = new Map();

/**
 * @param {any} runtime of ort.js
 * @param {{ model: string, past: number, behind?: number }} what past: tokens that the first step is fed; behind: positions in its caches
 */
export async function openDecoder({ ort }, { model, past: count, behind = 0 }) {
  const preferredOutputLocation = Object.fromEntries(NAMES.map((name) => [`present.${name}`, 'gpu-buffer']));
  const session = await ort.InferenceSession.create(model, { executionProviders: ['webgpu'], logSeverityLevel: 3, preferredOutputLocation });
  const rows = (/** @type {number} */ seed) => Float32Array.from({ length: 64 * behind }, (_, n) => Math.sin(n * 12.9898 + seed));
  const past = NAMES.map((name, n) => [`past_key_values.${name}`, new ort.Tensor('float32', rows(n), [1, 2, behind, 32])]);
  decoders.set(behind, { ort, session, past: Object.fromEntries(past), step: behind, next: new Array(count).fill(1) });
}

/** Returns the most likely next token of the decoder that began behind so many positions. @param {number} behind @returns {Promise<number>} */
export async function nextToken(behind) {
  const decoder = decoders.get(behind);
  if (!decoder) throw new Error('no decoder is open');
  const { ort, session, past, step, next } = decoder;
  const total = step + next.length;
  const tensor = (/** @type {BigInt64Array} */ values) => new ort.Tensor('int64', values, [1, values.length]);
  const integers = (/** @type {number[]} */ values) => tensor(BigInt64Array.from(values, BigInt));
  const mask = tensor(new BigInt64Array(total).fill(1n));
  const given = { input_ids: integers(next), position_ids: integers(next.map((_, n) => step + n)), attention_mask: mask };
  const outputs = await session.run({ ...given, ...past });
  for (const tensor of Object.values(past)) tensor.dispose();
  const last = outputs.logits.data.slice(-outputs.logits.dims[2]);
  const token = last.indexOf(last.reduce((/** @type {number} */ a, /** @type {number} */ b) => Math.max(a, b)));
  decoder.next = [token];
  decoder.past = Object.fromEntries(NAMES.map((name) => [`past_key_values.${name}`, outputs[`present.${name}`]]));
  decoder.step = total;
  return token;
}
