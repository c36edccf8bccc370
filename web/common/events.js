// Events that pages listen for: ort.on(name, listener). Twin of pyruntime/session/events.py.

import { InvalidInput } from './errors.js';

/** @typedef {(event: any) => void} Listener */

/** By name of the event. @type {Record<string, Set<Listener>>} */
const listeners = { memory: new Set(), session: new Set() };

/** @param {string} name @returns {Set<Listener>} */
function of(name) {
  if (!Object.hasOwn(listeners, name)) throw new InvalidInput(`there is no event "${name}"`, { hint: `one of ${Object.keys(listeners).join(', ')}` });
  return listeners[name];
}

/**
 * Calls `listener` for each event of this name from now on. Returns a function that ends it.
 * @param {string} name @param {Listener} listener @returns {() => void}
 */
export function on(name, listener) {
  if (typeof listener !== 'function') throw new InvalidInput(`the listener of "${name}" is no function`);
  of(name).add(listener);
  return () => off(name, listener);
}

/** Ends what `on` began. @param {string} name @param {Listener} listener */
export function off(name, listener) {
  of(name).delete(listener);
}

/** Whether any listener waits for these events: what makes an event may cost. @param {string} name */
export const isHeard = (name) => of(name).size > 0;

/** Calls the listeners. The error of one is reported as uncaught and stops nothing else. @param {string} name @param {object} event */
export function emit(name, event) {
  for (const listener of [...of(name)]) {
    try {
      listener(event);
    } catch (error) {
      queueMicrotask(() => { throw error; });
    }
  }
}
