// The entry for Node.js, Deno and Bun.

import { useNode } from './node/platform.js';

useNode();

export * from './index.js';
export { default } from './index.js';
