// The package's public API for kit/chromium.py: tensors cross as JSON, their bytes in base64.

import * as ort from '/dist/ort.mjs';

/** Views for raw data; any other type is bytes. */
const VIEWS = {
  float32: Float32Array, float64: Float64Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array, int8: Int8Array,
  uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array, float16: globalThis.Float16Array ?? Uint16Array,
};

const sessions = new Map();
let next = 1;

function toTensor(value) {
  if (value === null || Array.isArray(value)) return value && value.map(toTensor);
  const { type, dims, strings, base64 } = value;
  if (strings) return new ort.Tensor('string', strings, dims);
  const bytes = Uint8Array.fromBase64(base64);
  return new ort.Tensor(type, VIEWS[type] ? new VIEWS[type](bytes.buffer) : bytes, dims);
}

function fromTensor(tensor) {
  if (tensor === null || Array.isArray(tensor)) return tensor && tensor.map(fromTensor);
  const { type, dims, data } = tensor;
  if (type === 'string') return { type, dims, strings: data };
  return { type, dims, base64: new Uint8Array(data.buffer, data.byteOffset, data.byteLength).toBase64() };
}

/** Feeds of kit/chromium.py's `to_feeds`. */
export const toFeeds = (values) => Object.fromEntries(Object.entries(values).map(([name, value]) => [name, toTensor(value)]));

const calls = {
  async boot() {
    const start = performance.now();
    await ort.boot();
    return performance.now() - start;
  },

  async open(source, options) {
    const model = source.url ?? Uint8Array.fromBase64(source.base64);
    const session = await ort.InferenceSession.create(model, options);
    const dtypes = Object.fromEntries(session.handler.outputs.map(({ name, dtype }) => [name, dtype]));
    sessions.set(next, session);
    return { number: next++, outputs: session.outputNames, dtypes, timings: session.timings };
  },

  async run(number, values, names) {
    const feeds = toFeeds(values);
    const start = performance.now();
    const results = await sessions.get(number).run(feeds, names);
    const milliseconds = performance.now() - start;
    return { milliseconds, values: names.map((name) => fromTensor(results[name])) };
  },

  async repeat(number, values, count) {
    const feeds = toFeeds(values);
    const times = [];
    for (let i = 0; i < count; i++) {
      const start = performance.now();
      await sessions.get(number).run(feeds);
      times.push(performance.now() - start);
    }
    return times;
  },

  explain: (number) => sessions.get(number).explain(),
  metrics: (number) => sessions.get(number).metrics(),
  memory: (number) => sessions.get(number).memory(),
  python: (code, args) => ort.python(code, args),

  async release(number) {
    const session = sessions.get(number);
    sessions.delete(number);
    await session.release().catch((error) => {
      if (error.type !== 'SessionFailed') throw error; // it went with its worker
    });
  },
};

globalThis.ort = ort;
globalThis.bridge = {
  /** Answers { result } or { error }; past `limit` seconds the worker is ended. */
  async call(name, args, limit) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(Object.assign(new Error(`no answer within ${limit} s`), { name: 'TimeoutError' })), 1000 * limit);
    });
    try {
      return { result: (await Promise.race([calls[name](...args), late])) ?? null };
    } catch (error) {
      if (error.name === 'TimeoutError') ort.shutdown();
      return { error: { type: error.type ?? error.name, message: error.message.replace(/\nSee docs.*/, '') } };
    } finally {
      clearTimeout(timer);
    }
  },
};
