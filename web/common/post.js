// Sends messages with objects of a page's framework in them.

/** @import { Port } from './platform.js' */
/** @import { Message } from './protocol.js' */

/**
 * Posts a message. Proxies, such as reactive objects of Vue, cannot be cloned: plain copies are sent.
 * @param {Pick<Port, 'postMessage'>} worker @param {Message} message @param {Transferable[]} transfer
 */
export function post(worker, message, transfer) {
  try {
    worker.postMessage(message, transfer);
  } catch (error) {
    if (/** @type {Error} */ (error).name !== 'DataCloneError') throw error;
    worker.postMessage(/** @type {Message} */ (plain(message)), transfer);
  }
}

/** @param {unknown} value @returns {unknown} */
function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (Object.prototype.toString.call(value) !== '[object Object]') return value;
  return Object.fromEntries(Object.entries(/** @type {object} */ (value)).map(([name, item]) => [name, plain(item)]));
}
