// The package's types: those of web/index.d.ts, also as the default export, as in onnxruntime-web. In web/index.d.ts
// itself that export would be circular.

import * as ort from './index.js';

export * from './index.js';
export default ort;
