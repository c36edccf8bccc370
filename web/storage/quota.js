// Capacity of the browser's storage: files that do not fit are refused before their download.

import { QuotaExceeded } from '../common/errors.js';

/** Bytes, 0 if unknown. persisted: whether the browser will not evict the data. */
export async function storageEstimate() {
  const { storage } = navigator;
  const { usage = 0, quota = 0 } = await storage?.estimate?.() ?? {};
  return { usage, quota, persisted: await storage?.persisted?.() ?? false };
}

/** Throws if a file does not fit. @param {string} what a name for errors @param {number} needed bytes */
export async function checkQuota(what, needed) {
  const { usage, quota } = await storageEstimate();
  if (quota && needed > quota - usage) throw full(what, needed, { usage, quota });
}

/** @param {string} what @param {number} needed bytes @param {{ usage: number, quota: number }} estimate @param {unknown} [cause] */
function full(what, needed, { usage, quota }, cause) {
  const hint = 'delete stored data of this origin, or free space on the disk';
  const error = new QuotaExceeded(`${what} takes ${needed} bytes; this origin uses ${usage} of ${quota}`, { hint, cause });
  return Object.assign(error, { needed, usage, quota });
}

/**
 * Runs `write`. Errors: QuotaExceeded with the numbers if the storage is full.
 * @template T @param {string} what a name for errors @param {number} needed bytes @param {() => Promise<T>} write
 */
export async function withinQuota(what, needed, write) {
  try {
    return await write();
  } catch (cause) {
    if (!(cause instanceof DOMException) || cause.name !== 'QuotaExceededError') throw cause;
    throw full(what, needed, await storageEstimate(), cause);
  }
}
