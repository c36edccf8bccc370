// Limits of the memory that all sessions of the page hold together: env.memoryLimit and env.gpuMemoryLimit.

import { env } from 'onnxruntime-common';
import { InvalidInput } from '../../common/errors.js';
import { emit } from '../../common/events.js';
import { budgets, watcher } from '../../run/budgets.js';

/** @import { Caller, Held, PageMemory } from '../../common/protocol.js' */

const NAMES = /** @type {const} */ ({ memoryLimit: 'linear', gpuMemoryLimit: 'gpu' });

/** What each of the engine's workers holds. @type {Map<Caller, Held>} */
const workers = new Map();

/** Tells the workers, except one. @param {Caller} [except] */
function tell(except) {
  for (const caller of workers.keys()) if (caller !== except) caller.call('memoryLimits', pageMemory(caller)).catch(() => {}); // it may have ended
}

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
      tell();
    },
  });
}

watcher.reached = (memory, share) => {
  const { used, elsewhere, limit } = budgets[memory];
  emit('memory', { memory, share, used: used + elsewhere, limit });
};

const isLimited = () => budgets.linear.limit < Infinity || budgets.gpu.limit < Infinity;

watcher.changed = () => {
  if (isLimited()) tell();
};

/** Bytes that the workers hold, except one. @param {'linear' | 'gpu'} kind @param {Caller} [except] */
const held = (kind, except) => [...workers].reduce((sum, [caller, bytes]) => sum + (caller === except ? 0 : bytes[kind]), 0);

/** Of a worker: the limits, and what the page and the other workers hold. @param {Caller} caller @returns {PageMemory} */
export const pageMemory = (caller) => ({
  limits: { linear: budgets.linear.limit, gpu: budgets.gpu.limit },
  elsewhere: { linear: budgets.linear.used + held('linear', caller), gpu: budgets.gpu.used + held('gpu', caller) },
});

/** A worker holds other bytes. @param {Caller} [from] */
function changed(from) {
  for (const kind of Object.values(NAMES)) {
    budgets[kind].elsewhere = held(kind);
    budgets[kind].tell();
  }
  if (workers.size > 1 && isLimited()) tell(from);
}

/** A worker starts. @param {Caller} caller */
export function connectMemory(caller) {
  workers.set(caller, { linear: 0, gpu: 0 });
  caller.onHeld = (bytes) => {
    workers.set(caller, bytes);
    changed(caller);
  };
}

/** A worker has ended. @param {Caller} caller */
export function disconnectMemory(caller) {
  workers.delete(caller);
  changed();
}
