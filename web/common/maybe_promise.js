// Values that may be promises: what needs no waiting stays synchronous.

/** @template T @typedef {T | Promise<T>} Later */

/** @template T, R @param {Later<T>} value @param {(value: T) => Later<R>} next @returns {Later<R>} */
export const then = (value, next) => (value instanceof Promise ? value.then(next) : next(value));
