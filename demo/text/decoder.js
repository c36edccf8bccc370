// A decoder with its caches: what a run gives as present keys and values goes into the next as past ones, and as nobody
// reads them they stay where they are.

import { Tensor } from 'pyruntime';

/** @typedef {import('pyruntime').InferenceSession} InferenceSession */
/** @typedef {import('pyruntime').Tensor} AnyTensor */
/** @typedef {{ temperature: number, topK: number, topP: number }} Sampling */

/** @param {number[]} values @param {number[]} [dims] */
const int64 = (values, dims = [1, values.length]) => new Tensor('int64', BigInt64Array.from(values, BigInt), dims);
/** @param {number} value @param {number[]} [dims] */
const float32 = (value, dims = []) => new Tensor('float32', [value], dims);

const PAST = 'past_key_values';

/** What exported decoders ask for besides caches: of the new tokens, and how many were there before.
 * @type {Record<string, (ids: number[], past: number, how: Sampling) => AnyTensor>} */
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
  /** @param {InferenceSession} session that samples from its logits; its other inputs and outputs as Hugging Face's
   * exporters name them. Throws where it has an input that is not known, or no caches. */
  constructor(session) {
    this.session = session;
    this.length = 0;
    /** @type {Record<string, AnyTensor>} */
    this.pasts = {};
    this.names = session.inputNames.filter((name) => !name.startsWith(PAST));
    const unknown = this.names.filter((name) => !(name in FEEDS));
    if (unknown.length) throw new Error(`no decoder that this page knows has the input ${unknown.join(', ')}`);
    if (this.names.length === session.inputNames.length) throw new Error(`this model has no input ${PAST}…: export it with a cache`);
    this.restart();
  }

  /** A new text. */
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

  /** The token that follows. @param {number[]} ids @param {Sampling} how */
  async step(ids, how) {
    const given = Object.fromEntries(this.names.map((name) => [name, FEEDS[name](ids, this.length, how)]));
    const { token, ...presents } = await this.session.run({ ...given, ...this.pasts });
    for (const [name, tensor] of Object.entries(presents)) {
      const past = name.replace('present', PAST);
      if (past in this.pasts) this.pasts[past] = tensor;
    }
    this.length += ids.length;
    return Number(token.data[0]);
  }
}
