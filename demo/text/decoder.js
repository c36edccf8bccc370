// A decoder with its caches: what a run gives as present keys and values goes into the next as past ones, and as nobody
// reads them they stay where they are.

import { Tensor } from 'pyruntime';

/** @typedef {import('pyruntime').InferenceSession} InferenceSession */
/** @typedef {import('pyruntime').Tensor} AnyTensor */

export class Decoder {
  /** @param {InferenceSession} session that takes `input_ids` and `past_key_values…`, gives `logits` and `present…` */
  constructor(session) {
    this.session = session;
    this.length = 0;
    /** @type {Record<string, AnyTensor>} */
    this.pasts = {};
    this.restart();
  }

  /** A new text. */
  restart() {
    this.length = 0;
    this.pasts = {};
    for (const input of this.session.inputMetadata) {
      if (!input.isTensor || input.name === 'input_ids') continue;
      this.pasts[input.name] = new Tensor('float32', new Float32Array(0), input.shape.map((d) => (typeof d === 'number' ? d : 0)));
    }
  }

  /** The logits of what follows. @param {number[]} ids @returns {Promise<Float32Array>} */
  async step(ids) {
    const input = new Tensor('int64', BigInt64Array.from(ids, BigInt), [1, ids.length]);
    const { logits, ...presents } = await this.session.run({ input_ids: input, ...this.pasts });
    for (const [name, tensor] of Object.entries(presents)) this.pasts[name.replace('present', 'past_key_values')] = tensor;
    this.length += ids.length;
    return /** @type {Float32Array} */ (logits.data).slice(-Number(logits.dims.at(-1)));
  }
}
