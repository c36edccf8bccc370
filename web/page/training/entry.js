// What trains models, runs them with adapters and quantises them: dist/training.mjs, which load_code.js fetches.

import { createWithArtifacts, isArtifacts } from './artifact_session.js';
import { TrainingSession } from './session.js';

export { adapt } from './adapted_session.js';
export { quantize, quantizeStatic as static } from './quantize.js';

/** @param {import('./session_weights.js').PageParts} parts @param {any} model @param {Record<string, any>} [options] */
export const create = (parts, model, options) => (
  isArtifacts(model) ? createWithArtifacts(parts, model, options) : TrainingSession.create(parts, model, options));
