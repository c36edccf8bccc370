// A decoder whose caches stay on the GPU, a token at a time: for what is counted in between.

const NAMES = [0, 1, 2, 3].flatMap((n) => [`${n}.key`, `${n}.value`]); // caches of llama_mini

/** @type {{ ort: any, session: any, past: Record<string, any>, step: number, token: number } | null} */
let decoder = null;

/** @param {any} runtime of ort.js @param {string} model */
export async function openDecoder({ ort }, model) {
  const preferredOutputLocation = Object.fromEntries(NAMES.map((name) => [`present.${name}`, 'gpu-buffer']));
  const session = await ort.InferenceSession.create(model, { executionProviders: ['webgpu'], logSeverityLevel: 3, preferredOutputLocation });
  const past = NAMES.map((name) => [`past_key_values.${name}`, new ort.Tensor('float32', new Float32Array(0), [1, 2, 0, 32])]);
  decoder = { ort, session, past: Object.fromEntries(past), step: 0, token: 1 };
}

/** The most likely token after those before. @returns {Promise<number>} */
export async function nextToken() {
  if (!decoder) throw new Error('no decoder is open');
  const { ort, session, past, step, token } = decoder;
  const integers = (/** @type {number[]} */ values) => new ort.Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length]);
  const given = { input_ids: integers([token]), position_ids: integers([step]), attention_mask: integers(new Array(step + 1).fill(1)) };
  const outputs = await session.run({ ...given, ...past });
  for (const tensor of Object.values(past)) tensor.dispose();
  const { data } = outputs.logits;
  decoder.token = data.indexOf(data.reduce((/** @type {number} */ a, /** @type {number} */ b) => Math.max(a, b)));
  decoder.past = Object.fromEntries(NAMES.map((name) => [`past_key_values.${name}`, outputs[`present.${name}`]]));
  decoder.step++;
  return decoder.token;
}
