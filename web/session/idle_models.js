// Frees the memory of idle models when another needs it. Their next run loads their Programs again.

import { OutOfMemory } from '../common/errors.js';
import { watcher } from '../run/budgets.js';

/**
 * lastUsed: when its last work ended, in milliseconds; free: frees its memory, returns whether it held any
 * @typedef {{ lastUsed: number, free(): boolean }} Holder
 */

/** The models of this thread that may hold memory. @type {Set<Holder>} */
export const holders = new Set();
/** Models at work. @type {Set<Holder>} */
const working = new Set();
/** @typedef {{ wake(): void, end(): void, done: Promise<void> }} Turn */
/** first: the model that waits for others. Until it has ended its work, no other begins any. @type {{ first: Turn | null }} */
const turns = { first: null };

/** Frees the memory of the model that has been idle longest. Returns false if no idle model holds any. */
export function freeIdle() {
  const idle = [...holders].filter((holder) => !working.has(holder)).sort((a, b) => a.lastUsed - b.lastUsed);
  return idle.some((holder) => holder.free());
}

watcher.makeRoom = freeIdle;

/**
 * The result of `work`. If memory that all share is full, frees that of idle models, or waits for the work of others to end, and repeats it.
 * @template T @param {Holder} holder @param {() => Promise<T>} work @returns {Promise<T>}
 */
export async function withRoom(holder, work) {
  await turnsEnd();
  working.add(holder);
  let end = () => {};
  try {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof OutOfMemory && 'ofAll' in error)) throw error;
        if (freeIdle()) continue;
        if (working.size === 1) throw error;
        end = await othersEnd(holder, end);
      }
    }
  } finally {
    working.delete(holder);
    holder.lastUsed = performance.now();
    end();
    turns.first?.wake();
  }
}

/**
 * Waits until another model has ended its work, or waits, too. Meanwhile this one counts as idle, because its work starts again.
 * @param {Holder} holder @param {() => void} end ends its turn, if it is the first @returns {Promise<() => void>} the same
 */
async function othersEnd(holder, end) {
  const { first } = turns;
  working.delete(holder);
  first?.wake();
  if (first && first.end !== end) await first.done;
  else {
    const turn = first ?? beginTurn();
    end = turn.end;
    await new Promise((resolve) => { turn.wake = () => resolve(null); });
  }
  working.add(holder);
  return end;
}

async function turnsEnd() {
  while (turns.first) await turns.first.done;
}

function beginTurn() {
  /** @type {Turn} */
  const turn = { wake() {}, end() {}, done: Promise.resolve() };
  turn.done = new Promise((resolve) => {
    turn.end = () => {
      turns.first = null;
      resolve();
    };
  });
  turns.first = turn;
  return turn;
}
