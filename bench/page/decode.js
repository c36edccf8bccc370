// Tokens of a decoder one after another: what a step gives as present keys and values is fed to the next as past ones.

/** @typedef {{ model: string, weights: { path: string, data: string }[], type: string, layers: number, heads: number, width: number, lengths: number[], prompt: number, warm: number, steps: number }} Decoder */
/** @typedef {{ ort: typeof import('onnxruntime-common'), session: any }} Started */

/** @param {Decoder} what @param {typeof import('onnxruntime-common')} ort @param {number} tokens @param {number} past */
function feeds({ type, layers, heads, width }, ort, tokens, past) {
  const size = heads * past * width;
  const values = () => (type === 'float16' ? new Uint16Array(size) : new Float32Array(size));
  /** @type {Record<string, any>} */
  const given = {
    ids: new ort.Tensor('int64', BigInt64Array.from({ length: tokens }, (_, i) => BigInt(i)), [1, tokens]),
    ...counts(ort, past + tokens),
  };
  for (let n = 0; n < layers; n++) {
    for (const part of ['key', 'value']) {
      given[`past.${n}.${part}`] = new ort.Tensor(/** @type {any} */ (type), /** @type {any} */ (values()), [1, heads, past, width]);
    }
  }
  return given;
}

/** @param {typeof import('onnxruntime-common')} ort @param {number} total */
function counts(ort, total) {
  return { last: new ort.Tensor('int32', [total - 1], [1]), total: new ort.Tensor('int32', [total], []) };
}

/** Seconds of a run, and its outputs. @param {any} session @param {any} given @returns {Promise<[number, any]>} */
async function timed(session, given) {
  const start = performance.now();
  const outputs = await session.run(given);
  return [(performance.now() - start) / 1000, outputs];
}

/** Seconds of a step, after `warm` seconds of others. @param {Decoder} what @param {Started} started @param {number} past */
async function decoded(what, { ort, session }, past) {
  const times = [];
  let given = feeds(what, ort, 1, past);
  let warm = 0;
  for (let i = 1; times.length < what.steps; i++) {
    const [time, outputs] = await timed(session, given);
    if (i > 3 && warm >= what.warm) times.push(time);
    warm += time;
    const caches = Object.entries(outputs).filter(([name]) => name.startsWith('present'));
    given = { ids: given.ids, ...counts(ort, past + 1 + i), ...Object.fromEntries(caches.map(([name, x]) => [name.replace('present', 'past'), x])) };
  }
  return median(times);
}

/** @param {number[]} times */
const median = (times) => times.sort((a, b) => a - b)[times.length >> 1];

/**
 * @param {Record<string, any>} runtimes @param {Decoder} what
 * @returns {Promise<{ found: Record<string, number[]>, failed: Record<string, string> }>} by runtime: seconds of the
 * prefill, then of a step at each length; why there is none
 */
export async function decode(runtimes, what) {
  /** @type {Record<string, Started>} */
  const started = {};
  /** @type {Record<string, string>} */
  const failed = {};
  for (const [name, { ort }] of Object.entries(runtimes)) {
    const options = { executionProviders: ['wasm'], externalData: what.weights, logSeverityLevel: /** @type {3} */ (3) };
    try {
      started[name] = { ort, session: await ort.InferenceSession.create(what.model, options) };
    } catch (error) {
      failed[name] = String(/** @type {any} */ (error)?.message ?? error);
    }
  }
  /** @type {Record<string, number[]>} */
  const found = Object.fromEntries(Object.keys(started).map((name) => [name, []]));
  for (const [name, { ort, session }] of Object.entries(started)) {
    const given = feeds(what, ort, what.prompt, 0);
    const times = [];
    for (let i = 0; i < 4; i++) times.push((await timed(session, given))[0]);
    found[name].push(Math.min(...times));
  }
  for (const length of what.lengths) {
    for (const [name, one] of Object.entries(started)) found[name].push(await decoded(what, one, length));
  }
  return { found, failed };
}
