// The classes of the package whose session is given. This code is a file of its own, and its own copies would be other classes.

/**
 * @typedef {object} Parts
 * @property {any} Tensor
 * @property {new (text: string, where?: { hint?: string, cause?: unknown }) => Error} InvalidInput
 * @property {new (text: string, where?: { hint?: string, cause?: unknown }) => Error} SessionFailed
 * @property {new (text: string, where?: { hint?: string, cause?: unknown }) => Error} Terminated
 */
/** @typedef {any} Session an InferenceSession of this package */

/** Key of `Parts` in the class InferenceSession. */
export const PARTS = Symbol.for('pyruntime.parts');

/** @param {Session} session @returns {Parts} */
export function partsOf(session) {
  const parts = session?.constructor[PARTS];
  if (!parts) throw new TypeError("a session of pyruntime is expected: InferenceSession.create(…) of 'pyruntime'");
  return parts;
}
