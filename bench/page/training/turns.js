// Trains one network with several libraries, in turns, after their losses have been compared.

import { load } from './net.js';
import { ours } from './ours.js';

/** @import { NetInfo, Trainer } from './net.js' */
/** @typedef {{ error?: string, create?: number, losses: number[], steps: number[], forwards: number[], memory?: any }} Found milliseconds */

const SLOT = 300; // ms of a turn
const now = () => performance.now();

/** @returns {Promise<Record<string, (net: any) => Promise<Trainer>>>} */
async function makers() {
  const [{ tfjs }, { jax }] = await Promise.all([import(/** @type {any} */ ('/training/tfjs.js')), import(/** @type {any} */ ('/training/jax.js'))]);
  return { ours, jax, 'tfjs wasm': tfjs('wasm'), 'tfjs cpu': tfjs('cpu'), 'tfjs webgl': tfjs('webgl') };
}

/** @param {(n: number) => Promise<unknown>} work @param {number} at @param {number[]} into @param {number} count */
async function turn(work, at, into, count) {
  for (let n = 0; n < Math.min(5, Math.ceil(SLOT / (into.at(-1) ?? SLOT))); n++) {
    const begin = now();
    await work((at + n) % count);
    into.push(now() - begin);
  }
}

/**
 * @param {{ info: NetInfo, names: string[], threads: number, rounds: number, compared: number }} what compared: steps whose losses are returned
 * @returns {Promise<Record<string, Found>>}
 */
export async function training({ info, names, threads, rounds, compared }) {
  Object.defineProperty(navigator, 'hardwareConcurrency', { value: threads, configurable: true });
  const net = await load(info);
  const count = net.batches.length;
  /** @type {Record<string, Found>} */
  const found = {};
  /** @type {[string, Trainer][]} */
  const started = [];
  for (const [name, make] of Object.entries(await makers()).filter(([name]) => names.includes(name))) {
    const one = found[name] = /** @type {Found} */ ({ losses: [], steps: [], forwards: [] });
    try {
      const begin = now();
      const trainer = await make(net);
      for (let n = 0; n < compared; n++) {
        one.losses.push(await trainer.step(n % count));
        if (n === 0) one.create = now() - begin;
      }
      started.push([name, trainer]);
    } catch (error) {
      one.error = String(/** @type {any} */ (error)?.message ?? error).slice(0, 200);
    }
  }
  for (let round = 0; round < rounds; round++) {
    for (const [name, trainer] of started) {
      await new Promise((resolve) => setTimeout(resolve, 40)); // wait until the previous library's threads stop spinning
      await turn(trainer.step, round, found[name].steps, count);
      if (trainer.forward) await turn(trainer.forward, round, found[name].forwards, count);
    }
  }
  for (const [name, trainer] of started) {
    found[name].memory = await trainer.memory?.();
    await trainer.release();
  }
  return found;
}
