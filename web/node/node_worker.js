// A worker thread of Node.js with the interface of a browser's worker.

import * as process from 'node:process';
import { Worker as Thread } from 'node:worker_threads';

/** @import { Port } from '../common/platform.js' */

/** @param {string} message */
const failure = (message) => /** @type {ErrorEvent} */ ({ message });

/** @implements {Port} */
export class NodeWorker {
  /** @param {string | URL} url of a module @param {{ name?: string }} [options] */
  constructor(url, { name = '' } = {}) {
    /** @type {Port['onmessage']} */
    this.onmessage = null;
    /** @type {Port['onerror']} */
    this.onerror = null;
    /** @type {Port['onmessageerror']} */
    this.onmessageerror = null;
    // A thread inherits the program's flags. Node.js refuses --input-type for files, and lists of flags that concern the whole process.
    const execArgv = process.execArgv.some((flag) => flag.startsWith('--input-type')) ? [] : undefined;
    this.thread = new Thread(new URL('./worker.node.mjs', import.meta.url), { workerData: { url: String(url), name }, name, execArgv });
    this.thread.on('message', (data) => this.onmessage?.(/** @type {MessageEvent} */ ({ data })));
    this.thread.on('messageerror', (data) => this.onmessageerror?.(/** @type {MessageEvent} */ ({ data })));
    this.thread.on('error', (error) => this.onerror?.(failure(error.message)));
    this.thread.on('exit', (code) => this.onerror?.(failure(`the thread ended with code ${code}`)));
    this.thread.unref(); // after `on`, which calls ref(): an idle thread must not keep the program running
  }

  /** @param {unknown} message @param {Transferable[]} [transfer] */
  postMessage(message, transfer = []) {
    this.thread.postMessage(message, transfer);
  }

  terminate() {
    this.onerror = null;
    this.thread.terminate();
  }

  /** Keeps the program running. */
  ref() {
    this.thread.ref();
  }

  unref() {
    this.thread.unref();
  }
}
