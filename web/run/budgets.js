// The memory that the sessions of this thread hold, and what all sessions of the page may hold together.

import { OutOfMemory } from '../common/errors.js';
import { Budget } from '../runtime/memory_budget.js';

/** @typedef {'linear' | 'gpu'} Kind */

/**
 * What the thread does after a change, when sessions hold a share of a limit, and when there is no room: `makeRoom` frees some memory, or
 * returns false.
 * @type {{ changed(): void, reached(kind: Kind, share: number): void, makeRoom(): boolean }}
 */
export const watcher = { changed() {}, reached() {}, makeRoom: () => false };

const budget = (/** @type {Kind} */ kind) => new Budget((share) => watcher.reached(kind, share));

export const budgets = { linear: budget('linear'), gpu: budget('gpu') };

/** Notes that a session has taken memory. @param {Kind} kind @param {number} more bytes; below 0: it freed them */
export function hold(kind, more) {
  if (!more) return;
  budgets[kind].hold(more);
  watcher.changed();
}

/** Makes room within the page's limit, or throws OutOfMemory. @param {Kind} kind @param {number} more bytes */
export function checkLimit(kind, more) {
  if (more <= 0) return;
  while (!budgets[kind].fits(more)) if (!watcher.makeRoom()) throw full(kind, more);
}

/** ofAll: memory of other sessions would help. @param {Kind} kind @param {number} more */
function full(kind, more) {
  const { used, elsewhere, limit } = budgets[kind];
  const [memory, name] = kind === 'gpu' ? ['GPU memory', 'gpuMemoryLimit'] : ['memory', 'memoryLimit'];
  const text = `${more} more bytes of ${memory} are needed, sessions hold ${used + elsewhere}, env.${name} is ${limit}`;
  const error = new OutOfMemory(text, { hint: `raise env.${name} or release sessions` });
  return Object.assign(error, kind === 'gpu' ? { ofAll: true, gpu: true } : { ofAll: true });
}
