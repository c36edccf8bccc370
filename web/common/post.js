// Sends messages with objects of a page's framework in them.

/**
 * Posts a message. Proxies, such as reactive objects of Vue, cannot be cloned: plain copies are sent.
 * @param {{ postMessage: (message: unknown, transfer: Transferable[]) => void }} worker @param {unknown} message
 * @param {Transferable[]} transfer
 */
export function post(worker, message, transfer) {
  try {
    worker.postMessage(message, transfer);
  } catch (error) {
    if (/** @type {Error} */ (error).name !== 'DataCloneError') throw error;
    worker.postMessage(plain(message), transfer);
  }
}

/** @param {any} value @returns {any} */
function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  const isRecord = Object.prototype.toString.call(value) === '[object Object]';
  return isRecord ? Object.fromEntries(Object.entries(value).map(([name, item]) => [name, plain(item)])) : value;
}
