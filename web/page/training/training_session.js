// `ort.TrainingSession`: its code is in a file of its own, because few pages train.

import { create } from './load_code.js';

export class TrainingSession {
  static create = create;
}
