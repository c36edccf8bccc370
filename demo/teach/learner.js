// Trains the network on the drawings and asks it about others.

import * as ort from 'pyruntime';
import { anyVariation, pixelsOf, SIZE } from './drawings.js';

const BATCH = 32; // drawings of a step, each varied at random

/** @typedef {import('./drawings.js').Drawing} Drawing */

/** @param {Float32Array[]} images */
function tensorOf(images) {
  const pixels = new Float32Array(images.length * SIZE * SIZE);
  images.forEach((image, n) => pixels.set(image, n * SIZE * SIZE));
  return new ort.Tensor('float32', pixels, [images.length, 1, SIZE, SIZE]);
}

export class Learner {
  /** @param {(progress: import('pyruntime').Progress) => void} onProgress @param {import('./symbols.js').Symbols} symbols */
  static async open(onProgress, symbols) {
    const session = await ort.TrainingSession.create('network.onnx', {
      loss: { crossEntropy: 'logits' }, optimizer: { adamW: { rate: 0.002 } }, onProgress,
    });
    return new Learner(session, symbols, await session.state());
  }

  /** @param {ort.TrainingSession} session @param {import('./symbols.js').Symbols} symbols @param {Uint8Array} start a checkpoint */
  constructor(session, symbols, start) {
    this.session = session;
    this.symbols = symbols;
    this.start = start;
  }

  /** The feeds of a step. */
  batch() {
    const chosen = this.symbols.draw(BATCH);
    const images = chosen.map(({ example }) => pixelsOf(example, anyVariation()));
    return { drawing: tensorOf(images), target: new ort.Tensor('int32', Int32Array.from(chosen, ({ slot }) => slot), [BATCH]) };
  }

  /** The network's scores of each symbol, for each drawing. @param {Drawing[]} drawings @returns {Promise<number[][]>} */
  async scores(drawings) {
    if (!drawings.length) return [];
    const { logits } = await this.session.evaluate({ drawing: tensorOf(drawings.map((drawing) => pixelsOf(drawing))) }, ['logits']);
    return this.symbols.scoresOf(logits.data);
  }

  /** Results for the held-out drawings. @returns {Promise<import('../lib/confusion.js').Result[]>} */
  async test() {
    const { tests } = this.symbols;
    const scores = await this.scores(tests.map(({ example }) => example));
    return tests.map(({ label }, n) => ({ label, scores: scores[n] })).filter((result) => result.scores);
  }

  /** Forgets what was learned. */
  startOver() {
    return this.session.load(this.start);
  }
}
