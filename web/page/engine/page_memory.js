// Limits of the memory that all sessions of the page hold together: env.memoryLimit and env.gpuMemoryLimit.

import { env } from 'onnxruntime-common';
import { InvalidInput } from '../../common/errors.js';
import { emit } from '../../common/events.js';
import { budgets, watcher } from '../../run/budgets.js';

/** @import { Held, PageMemory } from '../../common/protocol.js' */

const NAMES = /** @type {const} */ ({ memoryLimit: 'linear', gpuMemoryLimit: 'gpu' });

/** Tells the engine's worker; there may be none. @type {(memory: PageMemory) => void} */
let tell = () => {};

for (const [name, kind] of Object.entries(NAMES)) {
  Object.defineProperty(env, name, {
    configurable: true,
    enumerable: true,
    get: () => (budgets[kind].limit === Infinity ? undefined : budgets[kind].limit),
    set(limit) {
      if (!(limit === null || limit === undefined || limit > 0 && (Number.isInteger(limit) || limit === Infinity))) {
        throw new InvalidInput(`env.${name} cannot be ${limit}`, { hint: 'a number of bytes, or undefined for no limit' });
      }
      budgets[kind].limit = limit ?? Infinity;
      budgets[kind].tell();
      tell(pageMemory());
    },
  });
}

watcher.reached = (memory, share) => {
  const { used, elsewhere, limit } = budgets[memory];
  emit('memory', { memory, share, used: used + elsewhere, limit });
};

watcher.changed = () => {
  if (budgets.linear.limit < Infinity || budgets.gpu.limit < Infinity) tell(pageMemory());
};

/** @returns {PageMemory} */
export const pageMemory = () => ({
  limits: { linear: budgets.linear.limit, gpu: budgets.gpu.limit },
  elsewhere: { linear: budgets.linear.used, gpu: budgets.gpu.used },
});

/** What the engine's worker holds. @param {Held} held */
export function noteHeld(held) {
  for (const kind of Object.values(NAMES)) {
    budgets[kind].elsewhere = held[kind];
    budgets[kind].tell();
  }
}

/** A worker has started, or ended. @param {typeof tell} [toWorker] */
export function connectMemory(toWorker = () => {}) {
  tell = toWorker;
  noteHeld({ linear: 0, gpu: 0 });
}
