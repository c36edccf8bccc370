// How the page learns that its worker is gone, however it ended: no event tells of a worker that crashed or was terminated.
// The worker holds a lock for as long as it lives (Web Locks), and the page waits for the same lock.

/**
 * In the worker: holds the lock from now on.
 * @param {string} name
 * @returns {Promise<boolean>} once it is held; false where there are no locks (no secure context, or storage is forbidden)
 */
export function holdLifeline(name) {
  return new Promise((resolve) => {
    const hold = () => {
      resolve(true);
      return new Promise(() => {});
    };
    const asked = globalThis.navigator?.locks?.request(name, hold);
    if (asked) asked.catch(() => resolve(false));
    else resolve(false);
  });
}

/** In the page, once the worker holds the lock: settles when the worker is gone. @param {string} name @returns {Promise<void>} */
export async function lifelineEnds(name) {
  await navigator.locks.request(name, () => {});
}
