// Runs of sessions that save power wait while the page is hidden.

import { race } from '../engine/cancellation.js';

/** @import { Cancellation } from '../engine/cancellation.js' */

/**
 * Resolves when the page is visible (at once without a document), or when one of the signals aborts.
 * @param {Cancellation | null} cancellation of the run that waits @param {AbortSignal[]} ends signals that the session or its worker has ended
 */
export async function untilVisible(cancellation, ...ends) {
  const { document } = globalThis;
  if (document?.visibilityState !== 'hidden') return;
  const listening = new AbortController();
  const waiting = new Promise((resolve) => {
    document.addEventListener('visibilitychange', resolve, { signal: listening.signal });
    for (const end of ends) end.addEventListener('abort', resolve, { signal: listening.signal });
  });
  await race(cancellation, waiting, () => {}).finally(() => listening.abort());
}
