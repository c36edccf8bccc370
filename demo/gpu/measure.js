// Measures the cases of kit/gpu_cases.py in this page. bench/gpu_measure.py is the twin and describes how.

import * as ort from 'pyruntime';
import { messageOf, quantile } from '../common.js';
import { entry, secondsAtPeak } from './report.js';
import { elementsOf, weightsOf } from './values.js';

/** @import { Case, Entry, Kernel, Measured, Network, Peaks, Spread } from './report.js' */
/** @typedef {{ peaks: Peaks, software: boolean, half: boolean, tune: boolean, signal: AbortSignal }} How */
/** @typedef {Record<string, ort.Tensor>} Feeds */

const [LONG, MOST, GUESS] = [5, 500, 20]; // milliseconds of repeated kernels, repetitions, those of a first estimate
const [RUNS, BUDGET, LEAST, WARM_UP] = [9, 3000, 3, 2]; // runs, milliseconds of a case but so many runs, runs before
const [LONGEST, FEW] = [0.05, 3e8]; // longer cases are skipped: seconds at the peak; operations on software
const [COMPARED, LISTED] = [5e9, 10]; // operations of compared results; kernels of a network

/** What a report says about how it was measured. @param {boolean} tune */
export const settings = (tune) => ({ warmUp: WARM_UP, runs: RUNS, milliseconds: LONG, tune });

/** Thrown when the visitor stops. */
export class Stopped extends Error {}

/** @param {Case} one @param {How} how @returns {Promise<Entry>} */
export async function measureCase(one, how) {
  const { name, type } = one;
  const told = (/** @type {object} */ outcome) => /** @type {Entry} */ ({ name, ...outcome });
  if (type === 'float16' && !how.half) return told({ skipped: 'the adapter has no half floats (shader-f16)' });
  if (how.software ? one.flops > FEW : secondsAtPeak(one, how.peaks) > LONGEST) return told({ skipped: 'too long on this adapter' });
  try {
    return entry(one, how.peaks, await measured(one, how));
  } catch (error) {
    if (error instanceof Stopped) throw error;
    return told({ failed: messageOf(error) });
  }
}

/** A function that opens the model with a provider. @param {Pick<Case, 'model' | 'weights'>} one */
function opener({ model, weights }) {
  const [bytes, data] = [Uint8Array.from(atob(model), (letter) => letter.charCodeAt(0)), weightsOf(weights)];
  const externalData = weights.length ? [{ path: 'weights.bin', data }] : [];
  return (/** @type {string} */ provider, /** @type {object} */ options = {}) => ort.InferenceSession.create(bytes.slice(), { executionProviders: [provider], externalData, ...options });
}

/** @param {Record<string, import('./values.js').Values>} feeds @returns {Feeds} */
function tensorsOf(feeds) {
  const Half = /** @type {any} */ (globalThis).Float16Array;
  return Object.fromEntries(Object.entries(feeds).map(([name, values]) => {
    const elements = elementsOf(values);
    return [name, new ort.Tensor(/** @type {any} */ (values.type), values.type === 'float16' && Half ? new Half(elements.buffer) : elements, values.dims)];
  }));
}

/** @param {Case} one @param {How} how @returns {Promise<Measured>} */
async function measured(one, how) {
  const [open, feeds] = [opener(one), tensorsOf(one.feeds)];
  const choices = how.tune ? await tuned(open, feeds) : {};
  const expected = one.flops <= COMPARED ? await using(open('wasm'), (session) => session.run(feeds)) : null;
  return using(open('webgpu', { choices }), async (session) => {
    const results = await session.run(feeds);
    const repeat = await repetitions(session, feeds);
    const runs = await sampled(how.signal, async () => (await session.profile(feeds, { repeat })).map(({ milliseconds }) => milliseconds));
    return {
      choices, error: expected && difference(results, expected), milliseconds: spread(runs.map(sum)), repeat,
      kernels: await kernelsOf(session, feeds, (n) => quantile(runs.map((times) => times[n]), 0.5)),
    };
  });
}

/** @param {ReturnType<typeof opener>} open @param {Feeds} feeds */
const tuned = (open, feeds) => using(open('webgpu'), async (session) => (await session.tune(feeds, { seconds: 0 })).choices);

/** @template T @param {Promise<ort.InferenceSession>} opened @param {(session: ort.InferenceSession) => Promise<T>} work */
async function using(opened, work) {
  const session = await opened;
  try {
    return await work(session);
  } finally {
    await session.release();
  }
}

/** How often kernels run, by their times in the warm-up. @param {ort.InferenceSession} session @param {Feeds} feeds */
async function repetitions(session, feeds) {
  let [repeat, took] = [1, 0];
  for (let n = 0; n < WARM_UP; n++) {
    took = sum((await session.profile(feeds, { repeat })).map(({ milliseconds }) => milliseconds));
    repeat = took >= LONG ? 1 : GUESS;
  }
  return Math.max(1, Math.min(MOST, Math.ceil(LONG / Math.max(took, LONG / MOST))));
}

/** Results of several runs. @template T @param {AbortSignal} signal @param {() => Promise<T>} run */
async function sampled(signal, run) {
  const runs = [];
  for (const end = performance.now() + BUDGET; runs.length < LEAST || (runs.length < RUNS && performance.now() < end);) {
    if (signal.aborted) throw new Stopped();
    runs.push(await run());
  }
  return runs;
}

/** @param {number[]} times */
const sum = (times) => times.reduce((a, b) => a + b, 0);

/** @param {number[]} times milliseconds @returns {Spread} */
const spread = (times) => ({ median: quantile(times, 0.5), low: Math.min(...times), high: Math.max(...times), runs: times.length });

/**
 * What is known of each kernel, the slowest first.
 * @param {ort.InferenceSession} session @param {Feeds} feeds @param {(n: number) => number} [median] milliseconds of the nth kernel
 */
async function kernelsOf(session, feeds, median) {
  const sources = shadersOf(await session.listing(null, { code: true }));
  const calls = await session.profile(feeds);
  const found = calls.map(({ node, kernel, milliseconds }, n) => ({ node, kernel, milliseconds: median ? median(n) : milliseconds, ...about(sources.get(kernel) ?? '') }));
  return found.sort((a, b) => b.milliseconds - a.milliseconds);
}

/** The WGSL of each kernel in a listing, by its number. @param {string} listing */
export function shadersOf(listing) {
  /** @type {Map<string, string>} */
  const found = new Map();
  let number = '';
  for (const line of listing.split('\n')) {
    const head = /^ {2}code (\d+)$/.exec(line);
    if (head) found.set(number = head[1], '');
    else if (number && line.startsWith('    ')) found.set(number, `${found.get(number)}${line.slice(4)}\n`);
    else number = '';
  }
  return found;
}

const USES = { shared: 'var<workgroup>', subgroups: 'subgroup', half: 'f16' };

/** Workgroup and features of a shader, by its text; nothing for a kernel on the CPU. @param {string} source @returns {Pick<Kernel, 'place' | 'workgroup' | 'uses' | 'source'>} */
function about(source) {
  const size = /@workgroup_size\((.*?)\)/.exec(source);
  if (!size) return { place: 'wasm' };
  const uses = Object.entries(USES).flatMap(([name, word]) => (source.includes(word) ? [name] : []));
  return { place: 'webgpu', workgroup: size[1].replaceAll(' ', ''), uses, source: source.trimEnd() };
}

/** A network on both providers, which take turns, and its slowest kernels. @param {Case} one @param {How} how @returns {Promise<Network>} */
export async function measureNetwork(one, how) {
  try {
    return await network(one, how);
  } catch (error) {
    if (error instanceof Stopped) throw error;
    return /** @type {any} */ ({ name: one.name, failed: messageOf(error) });
  }
}

/** @param {Case} one @param {How} how @returns {Promise<Network>} */
async function network(one, how) {
  const [open, feeds] = [opener(one), tensorsOf(one.feeds)];
  return using(open('webgpu'), (gpu) => using(open('wasm', { intraOpNumThreads: 1 }), async (cpu) => {
    const [got, want] = [await gpu.run(feeds), await cpu.run(feeds)];
    for (let n = 0; n < WARM_UP; n++) for (const session of [gpu, cpu]) await session.run(feeds);
    const runs = await sampled(how.signal, async () => [await timed(gpu, feeds), await timed(cpu, feeds)]);
    const kernels = (await kernelsOf(gpu, feeds)).slice(0, LISTED);
    for (const kernel of kernels) delete kernel.source;
    return { name: one.name, webgpu: spread(runs.map(([took]) => took)), wasm: spread(runs.map(([, took]) => took)), error: difference(got, want), kernels };
  }));
}

/** Milliseconds of a run. @param {ort.InferenceSession} session @param {Feeds} feeds */
async function timed(session, feeds) {
  const start = performance.now();
  await session.run(feeds);
  return performance.now() - start;
}

/** The largest difference, relative to the largest value of its output; null if a value is not finite. @param {Record<string, any>} got @param {Record<string, any>} want */
function difference(got, want) {
  let found = 0;
  for (const name of Object.keys(want)) {
    const [a, b] = [numbersOf(got[name]), numbersOf(want[name])];
    let [gap, top] = [0, 1e-30];
    for (let i = 0; i < b.length; i++) {
      gap = Math.max(gap, Math.abs(a[i] - b[i])); // NaN stays
      top = Math.max(top, Math.abs(b[i]));
    }
    found = Math.max(found, gap / top);
  }
  return Number.isFinite(found) ? found : null;
}

/** @param {ort.Tensor} tensor */
function numbersOf({ type, data }) {
  if (type !== 'float16' || !(data instanceof Uint16Array)) return Float64Array.from(/** @type {any} */ (data), Number);
  return Float64Array.from(data, (bits) => {
    const [exponent, fraction] = [bits >> 10 & 31, bits & 1023];
    const magnitude = exponent === 31 ? NaN : exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24;
    return bits & 0x8000 ? -magnitude : magnitude;
  });
}
