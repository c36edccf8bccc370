// What a session's preset decides where no other option does. docs/api.md has the table; pyruntime/native/presets.py is
// its mirror.

/** @typedef {import('./stopper.js').Stopper} Stopper */
/** @typedef {{ threads: (processors: number) => number, powerPreference: GPUPowerPreference, rests?: boolean }} Preset rests: while the page is hidden */

const COMMON = 4; // threads gain little from there on, and the page has other work

/** @type {Record<string, Preset>} */
export const PRESETS = {
  latency: { threads: (processors) => Math.min(COMMON, processors), powerPreference: 'high-performance' },
  throughput: { threads: (processors) => processors, powerPreference: 'high-performance' },
  power: { threads: () => 1, powerPreference: 'low-power', rests: true },
};

/**
 * Returns once the page is shown, at once where it is or where there is none; or once one of these signals is given.
 * @param {Stopper | null} stopper of who waits @param {AbortSignal[]} ends of the session and of its worker
 */
export async function shown(stopper, ...ends) {
  const { document } = globalThis;
  if (document?.visibilityState !== 'hidden') return;
  const over = new AbortController(); // of who listens
  const waiting = new Promise((resolve) => {
    document.addEventListener('visibilitychange', resolve, { signal: over.signal });
    for (const end of ends) end.addEventListener('abort', resolve, { signal: over.signal });
  });
  await (stopper ? stopper.race(waiting, () => {}) : waiting).finally(() => over.abort());
}
