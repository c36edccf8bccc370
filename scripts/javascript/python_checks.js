// Functions for JavaScript that throws where its meaning differs from Python's. Only tests run such JavaScript.

/** Where Python raises, or means something else. */
export class Differs extends Error {}

/** What an index finds. @template T @param {T | undefined} value @returns {T} */
export function found(value) {
  if (value === undefined) throw new Differs('an index past the end, or a missing key');
  return value;
}

/** An index of an assignment. @param {unknown[]} list @param {number} at */
export function inside(list, at) {
  if (at < 0 || at >= list.length) throw new Differs('an index past the end');
  return at;
}

/** An index of an element that is removed, which may count from the end. @param {unknown[]} list @param {number} at */
export function within(list, at) {
  return inside(list, at < 0 ? at + list.length : at);
}

/** What a number is divided by. @param {number} number */
export function divisor(number) {
  if (number === 0) throw new Differs('a division by zero');
  return number;
}

/** What integers give. @param {number} number */
export function exact(number) {
  if (!Number.isSafeInteger(number)) throw new Differs('an integer beyond 2 ** 53');
  return number;
}

/** What a text is split by. @param {string} text */
export function part(text) {
  if (text === '') throw new Differs('an empty text is everywhere');
  return text;
}
