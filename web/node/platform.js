// The platform Node.js, and Deno and Bun, which have its modules.

import { availableParallelism } from 'node:os';
import { readFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { platform } from '../common/platform.js';
import { NodeWorker } from './node_worker.js';

const { exists } = platform;

/** @type {Partial<typeof platform>} */
const node = {
  worker: () => NodeWorker,
  reportsWorkerExit: true,
  processors: availableParallelism,

  readNow: (url) => new Uint8Array(readFileSync(new URL(url))).buffer,

  /** Paths of files are relative to the folder of `base`, or to the working directory. */
  address(text, base) {
    if (/^[a-z][a-z\d+.-]+:/i.test(text)) return text; // a scheme has two letters or more: one letter is a drive
    if (base && !base.startsWith('file:')) return new URL(text, base).href;
    return pathToFileURL(resolve(base ? fileURLToPath(new URL('.', base)) : '.', text)).href;
  },

  async exists(url) {
    return url.startsWith('file:') ? stat(new URL(url)).then((found) => found.isFile(), () => false) : exists(url);
  },
};

/** Makes Node.js the platform. */
export const useNode = () => void Object.assign(platform, node);
