// Waits for the GPU no longer than a session allows.

const SLICES = 8; // of the limit: a computer that sleeps, or a page that is frozen, loses one of them

/** Notices that nothing has happened for a while. */
export class Watchdog {
  /** @param {number} seconds Infinity: for ever */
  constructor(seconds) {
    this.left = SLICES;
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.timer = undefined;
    /** Resolves once the time has passed without progress. @type {Promise<true>} */
    this.expired = new Promise((resolve) => {
      if (seconds === Infinity) return;
      this.timer = setInterval(() => --this.left === 0 && resolve(true), 1000 * seconds / SLICES);
    });
  }

  progress() {
    this.left = SLICES;
  }

  end() {
    clearInterval(this.timer);
  }
}

/** Whether a promise settles in time. Does not throw its error. @param {Promise<unknown>} promise @param {number} seconds */
export async function isInTime(promise, seconds) {
  const watchdog = new Watchdog(seconds);
  const settled = promise.then(() => false, () => false);
  const isLate = await Promise.race([settled, watchdog.expired]);
  watchdog.end();
  return !isLate;
}
