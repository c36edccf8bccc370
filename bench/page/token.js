// Runs a decoder whose caches stay on the GPU token by token, between which calls are counted.

const NAMES = [0, 1, 2, 3].flatMap((n) => [`${n}.key`, `${n}.value`]); // caches, each of 2 heads of 32

/**
 * Decoders by the initial length of their caches. next: input tokens of the next step; items: number of texts in the
 * batch of a decoder with GroupQueryAttention, 0 for llama_mini
 * @type {Map<number, { ort: any, session: any, past: Record<string, any>, step: number, next: number[], items: number }>}
 */
const decoders = new Map();

/** The start of the name of a cache as a feed. @param {number} items */
const prefix = (items) => (items ? 'past.' : 'past_key_values.');

/**
 * @param {any} runtime of ort.js
 * @param {{ model: string, past: number, behind?: number, items?: number, places?: number }} what past: tokens that the first step is
 * fed; behind: positions in its caches; places: of caches of a fixed length, 0 if they grow
 */
export async function openDecoder({ ort }, { model, past: count, behind = 0, items = 0, places = 0 }) {
  const preferredOutputLocation = Object.fromEntries(NAMES.map((name) => [`present.${name}`, 'gpu-buffer']));
  const session = await ort.InferenceSession.create(model, { executionProviders: ['webgpu'], logSeverityLevel: 3, preferredOutputLocation });
  const dims = [items || 1, 2, places || behind, 32];
  const length = dims.reduce((a, b) => a * b);
  const rows = (/** @type {number} */ seed) => Float32Array.from({ length }, (_, n) => Math.sin(n * 12.9898 + seed));
  const past = NAMES.map((name, n) => [`${prefix(items)}${name}`, new ort.Tensor('float32', rows(n), dims)]);
  decoders.set(behind, { ort, session, past: Object.fromEntries(past), step: behind, next: new Array(count).fill(1), items });
}

/** The feeds of llama_mini. @param {any} ort @param {number} step @param {number[]} next */
function ofOneText(ort, step, next) {
  const tensor = (/** @type {BigInt64Array} */ values) => new ort.Tensor('int64', values, [1, values.length]);
  const integers = (/** @type {number[]} */ values) => tensor(BigInt64Array.from(values, BigInt));
  const mask = tensor(new BigInt64Array(step + next.length).fill(1n));
  return { input_ids: integers(next), position_ids: integers(next.map((_, n) => step + n)), attention_mask: mask };
}

/** Those of a decoder with GroupQueryAttention: each text is one token shorter than the one before. @param {any} ort @param {number} step @param {number[]} next @param {number} items */
function ofTexts(ort, step, next, items) {
  const total = step + next.length;
  const ids = BigInt64Array.from({ length: items * next.length }, (_, n) => BigInt(next[n % next.length]));
  const last = Int32Array.from({ length: items }, (_, n) => total - n - 1);
  return {
    ids: new ort.Tensor('int64', ids, [items, next.length]), last: new ort.Tensor('int32', last, [items]),
    total: new ort.Tensor('int32', Int32Array.of(total), []),
  };
}

/** Returns the most likely next token of the decoder that began behind so many positions. @param {number} behind @returns {Promise<number>} */
export async function nextToken(behind) {
  const decoder = decoders.get(behind);
  if (!decoder) throw new Error('no decoder is open');
  const { ort, session, past, step, next, items } = decoder;
  const given = items ? ofTexts(ort, step, next, items) : ofOneText(ort, step, next);
  const outputs = await session.run({ ...given, ...past });
  for (const tensor of Object.values(past)) tensor.dispose();
  const last = outputs.logits.data.slice(-outputs.logits.dims[2]);
  const token = last.indexOf(last.reduce((/** @type {number} */ a, /** @type {number} */ b) => Math.max(a, b)));
  decoder.next = [token];
  decoder.past = Object.fromEntries(NAMES.map((name) => [`${prefix(items)}${name}`, outputs[`present.${name}`]]));
  decoder.step = step + next.length;
  return token;
}
