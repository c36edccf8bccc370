// Trains the last two layers of a network for pictures; all layers before them keep what they learned from ImageNet.

import * as ort from 'pyruntime';
import { tensorOf } from './photographs.js';

const BATCH = 8; // photographs of a step

/** @typedef {import('./photographs.js').Photograph} Photograph */

export class Learner {
  /** @param {string} address of the network @param {(progress: import('pyruntime').Progress) => void} onProgress @param {import('../lib/classes.js').Classes<Photograph>} classes */
  static async open(address, onProgress, classes) {
    const session = await ort.TrainingSession.create(address, {
      loss: { crossEntropy: 'scores' }, optimizer: { adamW: { rate: 0.001 } }, trainable: 'head.*', cache: true, onProgress,
    });
    return new Learner(session, classes, await session.state());
  }

  /** @param {ort.TrainingSession} session @param {import('../lib/classes.js').Classes<Photograph>} classes @param {Uint8Array} start a checkpoint */
  constructor(session, classes, start) {
    this.session = session;
    this.classes = classes;
    this.start = start;
  }

  /** The feeds of a step. */
  batch() {
    const chosen = this.classes.draw(BATCH);
    return {
      picture: tensorOf(chosen.map(({ example }) => example), true),
      target: new ort.Tensor('int32', Int32Array.from(chosen, ({ slot }) => slot), [BATCH]),
    };
  }

  /** The network's scores of each class, for each photograph. @param {Photograph[]} photographs @returns {Promise<number[][]>} */
  async scores(photographs) {
    if (!photographs.length) return [];
    const { scores } = await this.session.evaluate({ picture: tensorOf(photographs) }, ['scores']);
    return this.classes.scoresOf(scores.data);
  }

  /** Results for the held-out photographs. @returns {Promise<import('../lib/confusion.js').Result[]>} */
  async test() {
    const { tests } = this.classes;
    const scores = await this.scores(tests.map(({ example }) => example));
    return tests.map(({ label }, n) => ({ label, scores: scores[n] })).filter((result) => result.scores);
  }

  /** Forgets what was learned. */
  startOver() {
    return this.session.load(this.start);
  }
}
