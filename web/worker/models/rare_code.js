// What few workers need: the worker's part of dist/training.mjs, which trainer_code.js loads.

export { AddedProviders } from '../providers/added_providers.js';
export { quantise } from './quantiser.js';
export { PageRouter } from '../page_router.js';
export { Trainer } from './trainer.js';
