// A worker thread of Node.js with the interface of a browser's worker.

import { Worker as Thread } from 'node:worker_threads';

export class NodeWorker {
  /** @param {string | URL} url of a module @param {{ name?: string }} [options] */
  constructor(url, { name = '' } = {}) {
    /** @type {((event: any) => void) | null} */
    this.onmessage = null;
    /** @type {((event: any) => void) | null} */
    this.onerror = null;
    /** @type {((event: any) => void) | null} */
    this.onmessageerror = null;
    this.thread = new Thread(new URL('./worker.node.mjs', import.meta.url), { workerData: { url: String(url), name }, name });
    this.thread.on('message', (data) => this.onmessage?.({ data }));
    this.thread.on('messageerror', (data) => this.onmessageerror?.({ data }));
    this.thread.on('error', (error) => this.onerror?.({ message: error.message }));
    this.thread.on('exit', (code) => this.onerror?.({ message: `the thread ended with code ${code}` }));
    this.thread.unref(); // after `on`, which calls ref(): an idle thread must not keep the program running
  }

  /** @param {unknown} message @param {any[]} [transfer] */
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
