// The package's types: web/index.d.ts, and all of it once more as the default export, as onnxruntime-web has it. A file
// that exports a namespace of itself would be circular.

import * as ort from './index.js';

export * from './index.js';
export default ort;
