// The entry for Node.js, Deno and Bun.

import { useNode } from './node/place.js';

useNode();

export * from './index.js';
export { default } from './index.js';
