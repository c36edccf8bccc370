// Runs a decoder token by token: the present keys and values of a step are the past ones of the next.

/** @typedef {{ model: string, weights: { path: string, data: string }[], type: string, layers: number, heads: number, width: number, lengths: number[], prompt: number, warm: [number, number], steps: number }} Decoder */
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

/** Returns the seconds of a run, and its outputs. @param {any} session @param {any} given @returns {Promise<[number,
 * any]>} */
async function timed(session, given) {
  const start = performance.now();
  const outputs = await session.run(given);
  return [(performance.now() - start) / 1000, outputs];
}

/** Returns the seconds of consecutive steps after this many tokens. @param {Decoder} what @param {Started} started
 * @param {number} past @param {number} steps @param {number} limit ms */
async function times(what, { ort, session }, past, steps, limit) {
  const found = [];
  const start = performance.now();
  let given = feeds(what, ort, 1, past);
  for (let i = 1; i <= steps && performance.now() - start < limit; i++) {
    const [time, outputs] = await timed(session, given);
    found.push(time);
    const caches = Object.entries(outputs).filter(([name]) => name.startsWith('present'));
    given = { ids: given.ids, ...counts(ort, past + 1 + i), ...Object.fromEntries(caches.map(([name, x]) => [name.replace('present', 'past'), x])) };
  }
  return found;
}

/** Returns the seconds of a step, after some uncounted ones. @param {Decoder} what @param {Started} started @param
 * {number} past */
async function decoded(what, started, past) {
  const [steps, seconds] = what.warm;
  await times(what, started, past, steps, 1000 * seconds);
  return median((await times(what, started, past, 3 + what.steps, Infinity)).slice(3));
}

/** @param {number[]} found */
const median = (found) => found.sort((a, b) => a - b)[found.length >> 1];

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
