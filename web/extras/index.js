// What few pages need, beside the package's bundle: `pyruntime/extras`.

export { Batcher } from './batcher.js';
export { TextGenerator } from './text_generator.js';
export { readTokenizer } from './text_prompts.js';
export { exportMeasures } from './measures.js';
