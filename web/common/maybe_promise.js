// Values that may be promises, so that work without waiting stays synchronous.

/** @template T @typedef {T | Promise<T>} MaybePromise */

/** @template T, R @param {MaybePromise<T>} value @param {(value: T) => MaybePromise<R>} next @returns {MaybePromise<R>} */
export const andThen = (value, next) => (value instanceof Promise ? value.then(next) : next(value));
