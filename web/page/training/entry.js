// What trains models: dist/training.mjs, which training_session.js fetches.

export { TrainingSession } from './session.js';
