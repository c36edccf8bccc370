// Room in the browser's storage: what does not fit is refused before it is fetched, with the numbers.

import { QuotaExceeded } from '../common/errors.js';

/** Bytes; zeros where the browser does not tell. persisted: whether it may not be evicted. */
export async function storageEstimate() {
  const { storage } = navigator;
  const { usage = 0, quota = 0 } = await storage?.estimate?.() ?? {};
  return { usage, quota, persisted: await storage?.persisted?.() ?? false };
}

/** @param {string} what @param {number} needed bytes */
export async function checkQuota(what, needed) {
  const { usage, quota } = await storageEstimate();
  if (quota && needed > quota - usage) throw full(what, needed, { usage, quota });
}

/** @param {string} what @param {number} needed bytes @param {{ usage: number, quota: number }} room @param {unknown} [cause] */
function full(what, needed, { usage, quota }, cause) {
  const error = new QuotaExceeded(`${what} takes ${needed} bytes; of its ${quota} this origin uses ${usage}`, { hint: 'delete what it keeps, or free space on the disk', cause });
  return Object.assign(error, { needed, usage, quota });
}

/** Does what writes; says how much it was if there was no room. @template T @param {string} what @param {number} needed bytes @param {() => Promise<T>} write */
export async function withinQuota(what, needed, write) {
  try {
    return await write();
  } catch (cause) {
    if (!(cause instanceof DOMException) || cause.name !== 'QuotaExceededError') throw cause;
    throw full(what, needed, await storageEstimate(), cause);
  }
}
