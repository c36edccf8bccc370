// Runs two runtimes in turns, so that both share what else the machine does, and compares their results.

import { quantile } from '../common.js';
import { elementsOf } from './models.js';

const [WARM_UP, LEAST, MOST, BUDGET] = [5, 9, 60, 1500]; // turns; milliseconds of a model

const SMALL = 0.1; // results that are all smaller are compared as if they were this large: noise in, almost nothing out

/** @typedef {{ name: string, ours: number, theirs: number | null, difference: number }} Row milliseconds; difference: relative to the largest value */

/** Feeds for a runtime. @param {any} runtime @param {import('./models.js').Entry} model */
const feedsOf = (runtime, model) => Object.fromEntries(Object.entries(model.inputs).map(([name, input]) => [name, new runtime.Tensor(input.type, elementsOf(input), input.dims)]));

/** @param {any} a results of one runtime @param {any} b of the other */
function difference(a, b) {
  let largest = 0;
  for (const name of Object.keys(a)) {
    const [x, y] = [a[name].data, b[name].data];
    let [gap, top] = [0, SMALL];
    for (let i = 0; i < x.length; i++) {
      gap = Math.max(gap, Math.abs(Number(x[i]) - Number(y[i])));
      top = Math.max(top, Math.abs(Number(y[i])));
    }
    largest = Math.max(largest, gap / top);
  }
  return largest;
}

/** @param {any} session @param {any} feeds */
async function timed(session, feeds) {
  const start = performance.now();
  await session.run(feeds);
  return performance.now() - start;
}

/**
 * The medians of both, in turns after a warm-up; each is first in every other turn.
 * @param {any} ours @param {any} theirs null: the host has no peer @param {import('./models.js').Entry} model @param {Uint8Array} bytes
 * @returns {Promise<Row>}
 */
export async function measure(ours, theirs, model, bytes) {
  const runtimes = theirs ? [ours, theirs] : [ours];
  const sessions = [];
  try {
    for (const runtime of runtimes) sessions.push(await runtime.InferenceSession.create(bytes.slice(), { executionProviders: ['wasm'], logSeverityLevel: 3 }));
    const feeds = runtimes.map((runtime) => feedsOf(runtime, model));
    const results = [];
    for (const [i, session] of sessions.entries()) results.push(await session.run(feeds[i]));
    for (let n = 0; n < WARM_UP; n++) for (const [i, session] of sessions.entries()) await session.run(feeds[i]);
    /** @type {number[][]} */
    const times = sessions.map(() => []);
    const end = performance.now() + BUDGET;
    for (let turn = 0; turn < MOST && (turn < LEAST || performance.now() < end); turn++) {
      const order = sessions.map((_, i) => (turn % 2 ? sessions.length - 1 - i : i));
      for (const i of order) times[i].push(await timed(sessions[i], feeds[i]));
    }
    const [own, its] = times.map((all) => quantile(all, 0.5));
    return { name: model.name, ours: own, theirs: its ?? null, difference: theirs ? difference(results[0], results[1]) : 0 };
  } finally {
    for (const session of sessions) await session.release();
  }
}
