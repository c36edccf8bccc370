// A worker whose file is not chosen yet: messages wait for it.

/** @typedef {Pick<Worker, 'postMessage' | 'terminate' | 'onmessage' | 'onerror' | 'onmessageerror'>} WorkerLike */
/** @typedef {Worker & { ref?: () => void, unref?: () => void }} PlaceWorker one of Node.js may keep the program from ending */

/** @implements {WorkerLike} */
export class DeferredWorker {
  constructor() {
    /** @type {PlaceWorker | null} */
    this.worker = null;
    this.awaited = false;
    this.ended = false;
    /** @type {[unknown, Transferable[]][]} */
    this.waiting = [];
    /** @type {any} */
    this.onmessage = null;
    /** @type {any} */
    this.onerror = null;
    /** @type {any} */
    this.onmessageerror = null;
  }

  /** @param {PlaceWorker} worker @param {() => void} first sends what goes before all that waits */
  use(worker, first) {
    if (this.ended) return worker.terminate();
    this.worker = worker;
    worker.onmessage = (event) => this.onmessage?.(event);
    worker.onerror = (event) => this.onerror?.(event);
    worker.onmessageerror = (event) => this.onmessageerror?.(event);
    if (this.awaited) worker.ref?.();
    first();
    for (const [message, transfer] of this.waiting.splice(0)) worker.postMessage(message, transfer);
  }

  /** @param {unknown} message @param {any} [transfer] */
  postMessage(message, transfer = []) {
    if (this.worker) this.worker.postMessage(message, transfer);
    else this.waiting.push([message, transfer]);
  }

  /** Somebody waits for an answer: a program in Node.js must not end. */
  ref() {
    this.awaited = true;
    this.worker?.ref?.();
  }

  unref() {
    this.awaited = false;
    this.worker?.unref?.();
  }

  terminate() {
    this.ended = true;
    this.worker?.terminate();
  }
}
