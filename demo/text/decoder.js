// A decoder with KV cache: the present keys and values of a run are the past ones of the next. They are never read, so they
// stay in the worker's memory.

import { Tensor } from 'pyruntime';

/** @typedef {import('pyruntime').InferenceSession} InferenceSession */
/** @typedef {import('pyruntime').Tensor} AnyTensor */
/** @typedef {{ temperature: number, topK: number, topP: number }} Sampling */

/** @param {number[]} values @param {number[]} [dims] */
const int64 = (values, dims = [1, values.length]) => new Tensor('int64', BigInt64Array.from(values, BigInt), dims);
/** @param {number} value @param {number[]} [dims] */
const float32 = (value, dims = []) => new Tensor('float32', [value], dims);

const PAST = 'past_key_values';

/** The inputs of exported decoders besides the KV cache. ids: the new tokens; past: the number of earlier ones.
 * @type {Record<string, (ids: number[], past: number, sampling: Sampling) => AnyTensor>} */
const FEEDS = {
  input_ids: (ids) => int64(ids),
  attention_mask: (ids, past) => int64(new Array(past + ids.length).fill(1)),
  position_ids: (ids, past) => int64(ids.map((_, n) => past + n)),
  num_logits_to_keep: () => int64([1], []),
  use_cache_branch: (_, past) => new Tensor('bool', [past > 0], [1]),
  temperature: (_ids, _past, { temperature }) => float32(temperature),
  top_k: (_ids, _past, { topK }) => int64([topK], []),
  top_p: (_ids, _past, { topP }) => float32(topP),
  random: () => float32(Math.random(), [1]),
};

export class Decoder {
  /** @param {InferenceSession} session that samples from its logits; other inputs and outputs have the names of Hugging
   * Face's exporters. Throws on an unknown input or without a KV cache. */
  constructor(session) {
    this.session = session;
    this.length = 0;
    /** @type {Record<string, AnyTensor>} */
    this.pasts = {};
    this.names = session.inputNames.filter((name) => !name.startsWith(PAST));
    const unknown = this.names.filter((name) => !(name in FEEDS));
    if (unknown.length) throw new Error(`this page cannot feed the input ${unknown.join(', ')} of this model`);
    if (this.names.length === session.inputNames.length) throw new Error(`this model has no input ${PAST}…: export it with a KV cache`);
    this.restart();
  }

  /** Starts a new text. */
  restart() {
    this.length = 0;
    this.pasts = {};
    for (const input of this.session.inputMetadata) {
      if (!input.isTensor || !input.name.startsWith(PAST)) continue;
      const dims = input.shape.map((d, axis) => (typeof d === 'number' ? d : Number(axis === 0))); // a batch of one
      const none = input.type === 'float16' ? new Uint16Array(0) : new Float32Array(0);
      this.pasts[input.name] = new Tensor(/** @type {'float32'} */ (input.type), /** @type {Float32Array} */ (none), dims);
    }
  }

  /** The next token. @param {number[]} ids @param {Sampling} sampling */
  async step(ids, sampling) {
    const feeds = Object.fromEntries(this.names.map((name) => [name, FEEDS[name](ids, this.length, sampling)]));
    const { token, ...presents } = await this.session.run({ ...feeds, ...this.pasts });
    for (const [name, tensor] of Object.entries(presents)) {
      const past = name.replace('present', PAST);
      if (past in this.pasts) this.pasts[past] = tensor;
    }
    this.length += ids.length;
    return Number(token.data[0]);
  }
}
