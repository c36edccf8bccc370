// The classes of the package whose session is given. This code is a file of its own, and its own copies would be other classes.

/** @typedef {import('../common/protocol.js').NumericData | string[]} Data */
/**
 * A tensor of onnxruntime-common. first: of tensors that may be in the worker (docs/api.md)
 * @typedef {{ type: string, dims: readonly number[], data: any, location: string, size: number, dispose(): void,
 *   getData(): Promise<any>, first?(count: number, axis: number): Tensor }} Tensor
 */
/**
 * What extras use of the package: the static property `classes` of its InferenceSession.
 * @typedef {object} Parts
 * @property {new (type: string, data: Data, dims: readonly number[]) => Tensor} Tensor
 * @property {typeof import('../common/errors.js').InvalidInput} InvalidInput
 * @property {typeof import('../common/errors.js').SessionFailed} SessionFailed
 * @property {typeof import('../common/errors.js').Terminated} Terminated
 */
/** @typedef {{ name: string, isTensor: boolean, type: string, shape?: readonly (number | string)[] }} Metadata */
/**
 * An InferenceSession of the package. handler.checked: copies of feeds that the session can run
 * @typedef {object} Session
 * @property {readonly string[]} inputNames
 * @property {readonly string[]} outputNames
 * @property {readonly Metadata[]} inputMetadata
 * @property {readonly Metadata[]} outputMetadata
 * @property {{ checked(feeds: Record<string, Tensor>): Record<string, Tensor> }} handler
 * @property {(feeds: Record<string, Tensor>, outputs: readonly string[], options: { signal?: AbortSignal }) => Promise<Record<string, Tensor>>} run
 */

/** @param {Session} session @returns {Parts} */
export function partsOf(session) {
  const { classes } = /** @type {{ classes?: Parts }} */ (session?.constructor ?? {});
  if (!classes) throw new TypeError("a session of pyruntime is expected: InferenceSession.create(…) of 'pyruntime'");
  return classes;
}
