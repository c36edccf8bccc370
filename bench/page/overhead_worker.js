// Runs a Program of one float input "x" repeatedly, by the package's executor.

import { Executor } from '/web/run/executor.js';

/** @typedef {import('./overhead.js').Given} Given */

const BATCH = 20; // runs between two readings of the clock, whose steps are as long as a run

/** @param {Given} program @param {number} runs */
async function measure({ header, blob, model }, runs) {
  const bytes = Uint8Array.from(model);
  const python = /** @type {any} */ ({ calls: 0, host() { this.calls++; } });
  const data = { header: JSON.parse(header), blob: Uint8Array.from(blob), python: null };
  const host = /** @type {any} */ ({ threads: 1, thread: '', shared: globalThis.crossOriginIsolated });
  const executor = await Executor.create(/** @type {any} */ (data), (offset, size) => bytes.subarray(offset, offset + size), python, host);
  const feeds = { x: { type: 'float32', dims: [2, 3], data: Float32Array.from([0, 1, 2, 3, 4, 5]) } };
  const times = [];
  for (let i = 0; i < Math.max(10, runs / BATCH); i++) {
    const start = performance.now();
    for (let n = 0; n < BATCH; n++) executor.run(feeds, { y: null });
    times.push((performance.now() - start) / BATCH);
  }
  times.sort((a, b) => a - b);
  return { median: times[times.length >> 1], python: python.calls };
}

globalThis.onmessage = ({ data }) => {
  measure(data.program, data.runs).then(postMessage, (error) => postMessage({ error: String(error?.message ?? error) }));
};
