// What programs do with transformers.js, on models of a folder of this server. `tasks[name](options)` gives plain data.

import { env, LogitsProcessor, LogitsProcessorList, pipeline, RawImage } from '@huggingface/transformers';

env.allowRemoteModels = false;
env.allowLocalModels = true;
env.localModelPath = '/program-models/';
env.useBrowserCache = false;
const original = new URLSearchParams(location.search).get('ort') === 'theirs';
if (original) env.backends.onnx.wasm.wasmPaths = '/onnxruntime-web/'; // else it asks a CDN for them

const TEXTS = ['The quick brown fox jumps over the lazy dog.', 'Old moon, light on the river', 'sun'];

/** A picture of coloured waves. @param {number} width @param {number} height */
function picture(width, height) {
  const pixels = new Uint8ClampedArray(width * height * 3);
  for (let i = 0; i < pixels.length; i++) {
    const [colour, x, y] = [i % 3, Math.floor(i / 3) % width, Math.floor(i / 3 / width)];
    pixels[i] = 127 * (1 + Math.sin((x * (colour + 1)) / 23 + y / (11 + 7 * colour)));
  }
  return new RawImage(pixels, width, height, 3);
}

/** @typedef {{ device: 'wasm' | 'webgpu', dtype: 'fp32' | 'q8' | 'q4' | 'q4f16', model_file_name?: string }} Options */

/** @param {string} task @param {string} model @param {Options} options @param {(pipe: any) => Promise<unknown>} use */
async function using(task, model, options, use) {
  const pipe = await pipeline(/** @type {any} */ (task), model, options);
  const found = await use(pipe);
  await pipe.dispose();
  return found;
}

/** Notes the logits of each token and the WebGPU calls until then. With `path`, its tokens are written. */
class Notes extends LogitsProcessor {
  /** @param {number[]} [path] */
  constructor(path) {
    super();
    this.path = path;
    /** @type {Float32Array[]} */
    this.logits = [];
    /** The likeliest token of each step. @type {number[]} */
    this.tokens = [];
    /** @type {Record<string, number>[]} */
    this.calls = [];
  }

  /** @param {bigint[][]} _ids @param {any} logits of one text */
  _call(_ids, logits) {
    const { data } = logits;
    const step = this.logits.push(data.slice()) - 1;
    this.tokens.push(data.reduce((best, x, n) => (x > data[best] ? n : best), 0));
    this.calls.push({ .../** @type {any} */ (globalThis).gpuCounts });
    if (this.path) data[this.path[step]] = Infinity;
    return logits;
  }
}

/** Largest difference of two rows of logits. Those of tokens that may not be repeated are infinite. @param {Float32Array} a @param {Float32Array} b */
const apart = (a, b) => a.reduce((most, x, n) => (x === b[n] ? most : Math.max(most, Math.abs(x - b[n]))), 0);

const tasks = {
  /** @param {Options} options */
  features: (options) => using('feature-extraction', 'encoder', options, async (pipe) => {
    const [tokens, sentences] = [await pipe(TEXTS), await pipe(TEXTS, { pooling: 'mean', normalize: true })];
    return { tokens: tokens.tolist(), sentences: sentences.tolist() };
  }),
  /** @param {Options} options */
  texts: (options) => using('text-classification', 'classifier', options, (pipe) => pipe(TEXTS, { top_k: null })),
  /** @param {Options} options */
  pictures: (options) => using('image-classification', 'pictures', options, (pipe) => pipe([picture(300, 200), picture(64, 90)], { top_k: null })),
  /** @param {Options} options */
  generation: (options) => using('text-generation', 'generator', options, async (pipe) => {
    const texts = await pipe(TEXTS.slice(0, 2), { max_new_tokens: 16, do_sample: false, no_repeat_ngram_size: 1 });
    const { logits } = await pipe.model(pipe.tokenizer(TEXTS, { padding: true }));
    return { texts, logits: logits.tolist().map((/** @type {number[][]} */ rows) => rows.at(-1)?.slice(0, 64)) };
  }),
};

/** The notes of a text on which `path` decides, if it is given. @param {any} pipe @param {number} count @param {number[]} [path] */
async function write(pipe, count, path) {
  const [notes, list] = [new Notes(path), new LogitsProcessorList()];
  list.push(notes);
  const how = { max_new_tokens: count, min_new_tokens: count, do_sample: false, no_repeat_ngram_size: 1 };
  await pipe.model.generate({ ...pipe.tokenizer(TEXTS[0]), ...how, logits_processor: list });
  return notes;
}

class LongText {
  /** Writes on WebAssembly, and opens the same model on the GPU. @param {Options} options @param {number} count */
  async open(options, count) {
    this.expected = /** @type {Notes} */ (await using('text-generation', 'generator', { ...options, device: 'wasm' }, (pipe) => write(pipe, count)));
    this.pipe = await pipeline('text-generation', 'generator', { ...options, device: 'webgpu' });
    await write(this.pipe, 8);
  }

  /** Writes the same text on the GPU. @param {number} count */
  async compare(count) {
    const { tokens, logits } = /** @type {Notes} */ (this.expected);
    const found = await write(this.pipe, count, tokens);
    const largest = Math.max(...logits.map((row) => row.reduce((most, x) => (x > -Infinity ? Math.max(most, Math.abs(x)) : most), 0)));
    return {
      same: found.tokens.filter((token, n) => token === tokens[n]).length,
      distinct: new Set(tokens).size,
      difference: Math.max(...found.logits.map((row, n) => apart(row, logits[n]))) / largest,
      calls: found.calls,
    };
  }

  /** Writes once more. @param {number} count */
  async again(count) {
    await write(this.pipe, count);
  }

  async close() {
    await this.pipe.dispose();
  }
}

Object.assign(globalThis, { tasks, longText: new LongText() });
