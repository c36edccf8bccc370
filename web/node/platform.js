// Node.js as a place that the package runs in; Deno and Bun, which have its modules, too.

import { availableParallelism } from 'node:os';
import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { platform } from '../common/platform.js';
import { NodeWorker } from './node_worker.js';

const { exists } = platform;

/** @type {Partial<typeof platform>} */
const here = {
  worker: () => /** @type {any} */ (NodeWorker),
  reportsWorkerExit: true,
  processors: availableParallelism,

  /** Of a file's path, too: from the folder of `base`, or where the program runs. */
  address(text, base) {
    if (/^[a-z][a-z\d+.-]+:/i.test(text)) return text; // two letters or more: one is a drive
    if (base && !base.startsWith('file:')) return new URL(text, base).href;
    return pathToFileURL(resolve(base ? fileURLToPath(new URL('.', base)) : '.', text)).href;
  },

  async exists(url) {
    return url.startsWith('file:') ? stat(new URL(url)).then((found) => found.isFile(), () => false) : exists(url);
  },
};

/** From now on the package runs as in Node.js. */
export const useNode = () => void Object.assign(platform, here);
