// The page of the bench: Python calls its `bench.…` and gets plain data back.

import { adapterTimes } from './adapter_speed.js';
import { compile } from './compile.js';
import { measure } from './measure.js';
import { again, open, stop } from './opened.js';
import { overhead } from './overhead.js';
import { profile } from './profile.js';
import { tune } from './tune.js';
import { ortRuntime } from './ort.js';
import { decode } from './decode.js';
import { training } from './training/turns.js';
import { nextToken, openDecoder } from './token.js';
import { Feeds, fetchBuffer, NOTHING } from './model.js';

/** @typedef {import('./measure.js').Runtime} Runtime */

/** @type {Record<string, Runtime>} */
const runtimes = {};

/**
 * Starts runtimes, which fixes their numbers of threads. Times are for a session of a tiny model, with all downloads.
 * @param {{ threads: number, tiny: string, provider: 'wasm' | 'webgpu', worker: boolean, jax: boolean, peer: boolean, ours?: boolean }} how
 * @returns {Promise<Record<string, number | string>>} milliseconds, or why not
 */
async function start({ threads, tiny, provider, worker, jax, peer, ours = true }) {
  Object.defineProperty(navigator, 'hardwareConcurrency', { value: threads }); // jax-js uses as many threads as there are processors
  const bytes = await fetchBuffer(tiny);
  /** @type {Record<string, () => Promise<Runtime>>} */
  const makers = {
    ...(ours && { ours: async () => ort(await import('pyruntime'), threads, provider, worker) }),
    ...(peer && { peer: async () => ort(await (provider === 'wasm' ? import('onnxruntime-web/wasm') : import('onnxruntime-web/webgpu')), threads, provider, worker) }),
    ...(jax && { jax: async () => (await import('./jax.js')).jaxRuntime() }),
  };
  /** @type {Record<string, number | string>} */
  const times = {};
  for (const [name, make] of Object.entries(makers)) {
    const begin = performance.now();
    try {
      runtimes[name] = await make();
      if (name !== 'jax') await tinySession(runtimes[name], bytes.slice(0));
      times[name] = performance.now() - begin;
    } catch (error) {
      times[name] = String(error);
    }
  }
  return times;
}

/** @param {any} module @param {number} threads @param {string} provider @param {boolean} worker */
function ort(module, threads, provider, worker) {
  module.env.wasm.proxy = worker;
  module.env.wasm.numThreads = threads;
  return ortRuntime(module, [provider]);
}

/** @param {Runtime} runtime @param {ArrayBuffer} bytes */
async function tinySession(runtime, bytes) {
  await (await runtime.create(new Uint8Array(bytes), new Feeds(NOTHING, new ArrayBuffer(0)))).release();
}

/**
 * Measures the peak of multiply-adds per second of one thread: generated loops, the best of several tries.
 * @param {{ code: string, loops: Record<string, number> }} what a module in base64, floating-point operations a turn by loop
 * @returns {Record<string, number>} operations a second
 */
function peak({ code, loops }) {
  const bytes = Uint8Array.from(atob(code), (c) => c.charCodeAt(0));
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 65536 });
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes), { env: { memory } });
  return Object.fromEntries(Object.entries(loops).map(([name, operations]) => {
    const loop = /** @type {(turns: number) => void} */ (exports[name]);
    for (let i = 0; i < 3000; i++) loop(100); // until it is compiled by the optimising compiler
    let best = 0;
    for (let i = 0; i < 30; i++) {
      const begin = performance.now();
      loop(200_000);
      best = Math.max(best, (200_000 * operations * 1000) / (performance.now() - begin));
    }
    return [name, best];
  }));
}

/** Returns the name of the GPU. */
async function adapter() {
  const found = await /** @type {any} */ (navigator).gpu?.requestAdapter();
  if (!found) return '';
  const { vendor, architecture, device, description } = found.info;
  return [vendor, architecture, device, description].filter(Boolean).join(' ');
}

/** @param {import('./model.js').ModelInfo} info @param {import('./measure.js').Effort} effort */
const model = (info, effort) => measure(runtimes, info, effort);

Object.assign(globalThis, { bench: { start, model, open: (/** @type {import('./model.js').ModelInfo} */ info) => open(runtimes, info), again, stop, openDecoder: (/** @type {{ model: string, past: number, behind?: number }} */ what) => openDecoder(Object.values(runtimes)[0], what), nextToken, decode: (/** @type {import('./decode.js').Decoder} */ what) => decode(runtimes, what), peak, adapter, adapterTimes, compile, training, overhead, profile, tune } });
