// The worker's entry: the engine, for one page or for all of an origin, or one of its threads. They share a file because bundlers turn small files into data:
// URLs, whose workers have no shared memory. It does nothing in other places: a bundler may compile it into the page's own code.

import { startEngine } from './worker/engine.js';
import { startShared } from './worker/start_shared.js';
import { startThread } from './threads/thread.js';
import { ENGINE, SHARED, THREAD } from './threads/mailbox.js';

const { name } = /** @type {{ name?: string }} */ (globalThis);
if (name?.startsWith(THREAD)) startThread();
else if (name?.startsWith(SHARED)) startShared(startEngine);
else if (name === ENGINE) startEngine();

export { startEngine }; // for a shared worker without `Worker`
