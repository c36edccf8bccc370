// Releases what a page dropped without releasing it, counts it, and warns once.

import { warnOnce } from './log.js';

/**
 * @template H
 * @param {string} what such as "session" @param {string} method that releases one @param {(held: H) => unknown} release
 */
export function dropped(what, method, release) {
  const found = { count: 0, registry: new FinalizationRegistry((/** @type {H} */ held) => collected(held)) };
  /** @param {H} held */
  function collected(held) {
    found.count++;
    const text = `a ${what} was dropped without ${method}(); its memory is freed when the browser collects garbage, which may be late`;
    warnOnce(text, undefined, `dropped ${what}`);
    Promise.resolve(release(held)).catch(() => {}); // its worker or device may be gone
  }
  return found;
}
