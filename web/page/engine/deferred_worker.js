// A worker whose file is not chosen yet: messages wait for it.

import { post } from '../../common/post.js';

/** @import { Port } from '../../common/platform.js' */
/** @import { Message } from '../../common/protocol.js' */

export class DeferredWorker {
  /** @type {Port | null} */
  worker = null;
  hasRef = false;
  hasEnded = false;
  /** @type {[Message, Transferable[]][]} */
  waiting = [];
  /** @type {Port['onmessage']} */
  onmessage = null;
  /** @type {Port['onerror']} */
  onerror = null;
  /** @type {Port['onmessageerror']} */
  onmessageerror = null;
  /** Called for a waiting message that cannot be sent. @type {(id: number, error: Error) => void} */
  onrefused = () => {};

  /** @param {Port} worker gets the listeners @param {() => void} first sends the message that must precede the waiting ones */
  use(worker, first) {
    if (this.hasEnded) return worker.terminate();
    const { onmessage, onerror, onmessageerror } = this;
    this.worker = Object.assign(worker, { onmessage, onerror, onmessageerror });
    if (this.hasRef) worker.ref?.();
    first();
    for (const [message, transfer] of this.waiting.splice(0)) {
      try {
        post(worker, message, transfer);
      } catch (error) {
        if ('id' in message) this.onrefused(message.id, /** @type {Error} */ (error));
      }
    }
  }

  /** @param {Message} message @param {Transferable[]} transfer */
  postMessage(message, transfer) {
    if (this.worker) post(this.worker, message, transfer);
    else this.waiting.push([message, transfer]);
  }

  /** Keeps a program in Node.js running while a caller waits for an answer. */
  ref() {
    this.hasRef = true;
    this.worker?.ref?.();
  }

  unref() {
    this.hasRef = false;
    this.worker?.unref?.();
  }

  terminate() {
    this.hasEnded = true;
    this.worker?.terminate();
  }
}
