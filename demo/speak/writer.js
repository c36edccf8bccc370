// A decoder that learns a text, and writes on: both with the same weights, in one training session.

import * as ort from 'pyruntime';
import { softmax } from '../common.js';

const [ROWS, LENGTH] = [8, 64]; // pieces of the text in a step, characters of each
const HELD_OUT = 0.1; // fraction of the text, at its end
export const SHORTEST = 4 * LENGTH; // characters of a text that can be learned

/** @typedef {import('./alphabet.js').Alphabet} Alphabet */

/** @param {number[][]} rows */
const int64 = (rows) => new ort.Tensor('int64', BigInt64Array.from(rows.flat(), BigInt), [rows.length, rows[0].length]);

/** Draws a number by these scores; at temperature 0 the likeliest one. @param {ArrayLike<number>} scores @param {number} temperature @param {() => number} [random] from 0 to 1 */
export function drawn(scores, temperature, random = Math.random) {
  const all = Array.from(scores);
  if (temperature === 0) return all.indexOf(Math.max(...all));
  let rest = random();
  return Math.max(0, softmax(all.map((score) => score / temperature)).findIndex((share) => (rest -= share) < 0));
}

export class Writer {
  /** @param {(progress: import('pyruntime').Progress) => void} onProgress */
  static async open(onProgress) {
    const session = await ort.TrainingSession.create('decoder.onnx', {
      loss: { crossEntropy: 'logits' }, optimizer: { adamW: { rate: 0.004, beta2: 0.98 } },
      schedule: { constant: { warmup: 20 } }, clip: 1, frozen: 'slopes', onProgress,
    });
    return new Writer(session, await session.state());
  }

  /** @param {ort.TrainingSession} session @param {Uint8Array} start a checkpoint */
  constructor(session, start) {
    this.session = session;
    this.start = start;
    /** The text as numbers. @type {number[]} */
    this.numbers = [];
  }

  /** @param {string} text @param {Alphabet} alphabet */
  read(text, alphabet) {
    this.numbers = alphabet.encode(text);
  }

  /** The end of the part that is learned; the rest is held out, if there is enough. */
  get end() {
    const held = Math.floor(HELD_OUT * this.numbers.length);
    return this.numbers.length - (held > 2 * LENGTH ? held : 0);
  }

  /** Pieces of the text, each with the characters that follow. @param {number[]} starts */
  feeds(starts) {
    const rows = starts.map((start) => this.numbers.slice(start, start + LENGTH + 1));
    return { input_ids: int64(rows.map((row) => row.slice(0, -1))), target: int64(rows.map((row) => row.slice(1))), ...this.pasts(rows.length) };
  }

  batch() {
    return this.feeds(Array.from({ length: ROWS }, () => Math.floor(Math.random() * (this.end - LENGTH))));
  }

  /** The share of held-out characters that the network has expected most; undefined without any. */
  async test() {
    const room = this.numbers.length - this.end - LENGTH - 1;
    if (room <= 0) return undefined;
    const feeds = this.feeds(Array.from({ length: ROWS }, (_, n) => this.end + Math.floor((n * room) / (ROWS - 1))));
    const { logits } = await this.session.evaluate(feeds, ['logits']);
    const [data, size] = [/** @type {Float32Array} */ (logits.data), logits.dims[2]];
    const wanted = Array.from(/** @type {BigInt64Array} */ (feeds.target.data), Number);
    return wanted.filter((number, n) => drawn(data.subarray(n * size, (n + 1) * size), 0) === number).length / wanted.length;
  }

  /** No keys and values yet. @param {number} rows @returns {Record<string, ort.Tensor>} */
  pasts(rows) {
    const names = [0, 1].flatMap((layer) => [`past_key_values.${layer}.key`, `past_key_values.${layer}.value`]);
    return Object.fromEntries(names.map((name) => [name, new ort.Tensor('float32', new Float32Array(0), [rows, 4, 0, 16])]));
  }

  /**
   * Writes on, one character after another; a step computes the new character only.
   * @param {number[]} prompt @param {number} count @param {number} temperature @param {(numbers: number[]) => boolean} more whether to go on
   */
  async write(prompt, count, temperature, more) {
    let [pasts, fresh] = [this.pasts(1), prompt];
    /** @type {number[]} */
    const written = [];
    const presents = Object.keys(pasts).map((name) => name.replace('past_key_values', 'present'));
    while (written.length < count && more(written)) {
      const { logits, ...found } = await this.session.evaluate({ input_ids: int64([fresh]), ...pasts }, ['logits', ...presents]);
      const scores = /** @type {Float32Array} */ (logits.data).subarray(-logits.dims[2]);
      fresh = [drawn(scores, temperature)];
      written.push(fresh[0]);
      pasts = Object.fromEntries(Object.entries(found).filter(([name]) => name !== 'loss').map(([name, tensor]) => [name.replace('present', 'past_key_values'), tensor]));
    }
    return written;
  }

  /** Forgets what was learned. */
  startOver() {
    return this.session.load(this.start);
  }
}
