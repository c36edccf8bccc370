// How much of a file has arrived, for those who read its beginning meanwhile.

export class Arrival {
  /** Bytes from the beginning of the file. */
  count = 0;
  /** @type {{ end: number, done: () => void, failed: (reason: unknown) => void }[]} */
  waiting = [];
  /** Why no more bytes arrive. @type {{ reason: unknown } | null} */
  failure = null;

  /** Resolves when the first `end` bytes have arrived; null if they are there. @param {number} end @returns {Promise<void> | null} */
  until(end) {
    if (this.failure) return Promise.reject(this.failure.reason);
    if (end <= this.count) return null;
    return new Promise((done, failed) => { this.waiting.push({ end, done, failed }); });
  }

  /** @param {number} count of bytes that have arrived now */
  reach(count) {
    this.count = count;
    const ready = this.waiting.filter(({ end }) => end <= count);
    this.waiting = this.waiting.filter(({ end }) => end > count);
    for (const { done } of ready) done();
  }

  /** @param {unknown} reason */
  fail(reason) {
    this.failure = { reason };
    for (const { failed } of this.waiting.splice(0)) failed(reason);
  }
}
