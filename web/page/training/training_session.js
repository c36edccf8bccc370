// `ort.TrainingSession`: its code is in a file of its own, because few pages train.

import { trainingCode } from './load_code.js';

export class TrainingSession {
  /** @param {any} model @param {Record<string, any>} [options] */
  static async create(model, options) {
    return (await trainingCode()).TrainingSession.create(model, options);
  }
}
