// The worker's entry: the engine, or one of its threads. They share a file because bundlers turn small files into data:
// URLs, whose workers have no shared memory.

import { startEngine } from './worker/engine.js';
import { startThread } from './threads/thread.js';
import { THREAD } from './threads/mailbox.js';

const { name } = /** @type {{ name?: string }} */ (globalThis);
if (name?.startsWith(THREAD)) startThread();
else startEngine();
