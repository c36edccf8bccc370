// What sessions that train need in the worker: a part of dist/training.mjs, which trainer_code.js fetches.

export { Trainer } from './trainer.js';
