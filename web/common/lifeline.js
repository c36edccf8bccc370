// Lets the page notice the end of its worker: no event reports that a worker crashed or was terminated. The worker holds a
// lock (Web Locks) until it ends, and the page waits for the same lock.

/**
 * In the worker: takes the lock and never releases it.
 * @param {string} name
 * @returns {Promise<boolean>} whether it has the lock; false without Web Locks (no secure context, or storage is forbidden)
 */
export function holdLifeline(name) {
  return new Promise((resolve) => {
    const hold = () => {
      resolve(true);
      return new Promise(() => {});
    };
    const request = globalThis.navigator?.locks?.request(name, hold);
    if (request) request.catch(() => resolve(false));
    else resolve(false);
  });
}

/** In the page, once the worker has the lock: resolves when the worker has ended. @param {string} name @returns {Promise<void>} */
export async function lifelineEnds(name) {
  await navigator.locks.request(name, () => {});
}
