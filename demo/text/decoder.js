// A decoder with its caches: what a run gives as present keys and values goes into the next as past ones, and as nobody
// reads them they stay where they are.

import { Tensor } from 'pyruntime';

/** @typedef {import('pyruntime').InferenceSession} InferenceSession */
/** @typedef {import('pyruntime').Tensor} AnyTensor */

export class Decoder {
  /** @param {InferenceSession} session that takes `input_ids` and `past_key_values…`, gives `token` and `present…` */
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
      if (!input.isTensor || !input.name.startsWith('past')) continue;
      this.pasts[input.name] = new Tensor('float32', new Float32Array(0), input.shape.map((d) => (typeof d === 'number' ? d : 0)));
    }
  }

  /** The token that follows. @param {number[]} ids @param {{ temperature: number, topK: number, topP: number }} how */
  async step(ids, { temperature, topK, topP }) {
    const { token, ...presents } = await this.session.run({
      input_ids: new Tensor('int64', BigInt64Array.from(ids, BigInt), [1, ids.length]),
      temperature: new Tensor('float32', [temperature], []), top_k: new Tensor('int64', [BigInt(topK)], []),
      top_p: new Tensor('float32', [topP], []), random: new Tensor('float32', [Math.random()], [1]), ...this.pasts,
    });
    for (const [name, tensor] of Object.entries(presents)) this.pasts[name.replace('present', 'past_key_values')] = tensor;
    this.length += ids.length;
    return Number(token.data[0]);
  }
}
