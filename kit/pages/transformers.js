// What programs do with transformers.js, on models of a folder of this server. `tasks[name](options)` gives plain data.

import { env, pipeline, RawImage } from '@huggingface/transformers';

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

/** @typedef {{ device: 'wasm' | 'webgpu', dtype: 'fp32' | 'q8' | 'q4' }} Options */

/** @param {string} task @param {string} model @param {Options} options @param {(pipe: any) => Promise<unknown>} use */
async function using(task, model, options, use) {
  const pipe = await pipeline(/** @type {any} */ (task), model, options);
  const found = await use(pipe);
  await pipe.dispose();
  return found;
}

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

Object.assign(globalThis, { tasks });
