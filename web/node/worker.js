// The first module of a worker thread of Node.js: gives it a browser worker's globals, so that worker.mjs, Pyodide and the
// engine run unchanged (docs/design/platforms.md#nodejs).

import { setMaxListeners } from 'node:events';
import { closeSync, createReadStream, fstatSync, openSync, readFileSync, readSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { parentPort, workerData } from 'node:worker_threads';
import { NodeWorker } from './node_worker.js';

const { fetch } = globalThis;

/** The class of every worker's global. */
class WorkerGlobalScope {
  /** @param {unknown} value */
  static [Symbol.hasInstance](value) {
    return value === globalThis;
  }
}

/** `fetch`, for files too. @type {typeof fetch} */
async function fetchFile(resource, options) {
  const url = String(resource instanceof Request ? resource.url : resource);
  if (options?.signal) setMaxListeners(0, options.signal); // all files of a model share it
  if (!url.startsWith('file:')) return fetch(resource, options);
  const file = new URL(url);
  const { size } = await stat(file);
  const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(new Headers(options?.headers).get('range') ?? '') ?? [];
  if (start) {
    const last = Math.min(Number(end), size - 1);
    if (Number(start) > last) return new Response(null, { status: 416 });
    const part = Readable.toWeb(createReadStream(file, { start: Number(start), end: last, signal: options?.signal }));
    return new Response(part, { status: 206, headers: { 'content-range': `bytes ${start}-${last}/${size}` } });
  }
  const headers = { 'content-length': String(size), 'content-type': url.endsWith('.wasm') ? 'application/wasm' : '' };
  return new Response(Readable.toWeb(createReadStream(file, { signal: options?.signal })), { headers });
}

/** Opens a file for reads of parts, which throw if it has changed. @param {string} url */
function openFile(url) {
  const file = openSync(new URL(url), 'r');
  const { size, mtimeMs } = fstatSync(file);
  const changed = () => new Error('it has changed since it was opened');
  const read = (/** @type {Uint8Array} */ into, /** @type {number} */ offset) => {
    const now = fstatSync(file);
    if (now.size !== size || now.mtimeMs !== mtimeMs) throw changed();
    for (let done = 0; done < into.length;) {
      const count = readSync(file, into, done, into.length - done, offset + done);
      if (!count) throw changed();
      done += count;
    }
  };
  return { size, read, close: async () => closeSync(file) };
}

/** Just enough to read a file synchronously. */
class XMLHttpRequest {
  status = 0;

  /** @param {string} _ @param {string} url */
  open(_, url) {
    this.url = new URL(url);
  }

  send() {
    const bytes = readFileSync(/** @type {URL} */ (this.url));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    this.status = 200;
  }
}

const globals = {
  name: workerData.name, location: new URL(workerData.url), origin: 'null', self: globalThis, WorkerGlobalScope,
  Worker: NodeWorker, XMLHttpRequest, fetch: fetchFile, openFile, postMessage: parentPort.postMessage.bind(parentPort), onmessage: null,
};
for (const [name, value] of Object.entries(globals)) Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });

await import(workerData.url);
parentPort.on('message', (data) => /** @type {import('../common/platform.js').Port} */ (/** @type {unknown} */ (globalThis)).onmessage?.(/** @type {MessageEvent} */ ({ data })));
