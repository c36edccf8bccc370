// The classes of the package whose session is given. This code is a file of its own, and its own copies would be other classes.

/**
 * Elements of a tensor, as typed arrays and lists of texts have them.
 * @typedef {{ length: number, [place: number]: number | bigint | string, slice(from?: number, to?: number): Data,
 *   fill(value: number | bigint | string): Data, [Symbol.iterator](): Iterator<number | bigint | string> }} Data
 */
/**
 * A tensor of onnxruntime-common. first: only of tensors that may be in the worker
 * @typedef {{ type: string, dims: readonly number[], data: Data, location: string, size: number, dispose(): void,
 *   getData(release?: boolean): Promise<Data>, first?(count: number, axis: number): Tensor }} Tensor
 */
/**
 * What extras use of the package: the static property `classes` of its InferenceSession.
 * @typedef {object} Parts
 * @property {new (type: string, data: Data, dims: readonly number[]) => Tensor} Tensor
 * @property {typeof import('../common/errors.js').InvalidInput} InvalidInput
 * @property {typeof import('../common/errors.js').SessionFailed} SessionFailed
 * @property {typeof import('../common/errors.js').Terminated} Terminated
 * @property {typeof import('../common/errors.js').withHint} withHint
 */
/** @typedef {{ name: string, isTensor: boolean, type: string, shape?: readonly (number | string)[] }} Metadata */
/**
 * An InferenceSession of the package. handler.checked: copies of feeds that the session can run
 * @typedef {object} Session
 * @property {readonly string[]} inputNames
 * @property {readonly string[]} outputNames
 * @property {readonly Metadata[]} inputMetadata
 * @property {readonly Metadata[]} outputMetadata
 * @property {{ graphName?: string, producerName?: string, customMetadataMap: Record<string, string> } | null} metadata
 * @property {{ checked(feeds: Record<string, Tensor>, outputs?: string[], adapters?: unknown): Record<string, Tensor> }} handler
 * @property {(feeds: Record<string, Tensor>, outputs: readonly string[], options: { signal?: AbortSignal, adapters?: unknown }) => Promise<Record<string, Tensor>>} run
 */

/** Data of the same class. @param {Data} data @param {number} length @returns {Data} */
export const emptyData = (data, length) => new (/** @type {new (length: number) => Data} */ (data.constructor))(length);

/**
 * Copies a block of a tensor into another one. at: where it begins in each; size: of the block
 * @typedef {{ data: Data, dims: readonly number[], at: readonly number[] }} Place
 * @param {Place} from @param {Place} to @param {readonly number[]} size
 */
export function copyBlock(from, to, size) {
  let axis = size.length - 1; // elements of a block from this axis on follow each other
  while (axis > 0 && size[axis] === from.dims[axis] && size[axis] === to.dims[axis]) axis--;
  const [count, run] = [product(size.slice(0, axis)), product(size.slice(axis))];
  for (let n = 0; n < count; n++) {
    const index = size.map(() => 0);
    for (let k = axis - 1, rest = n; k >= 0; k--, rest = Math.floor(rest / size[k + 1])) index[k] = rest % size[k];
    const start = (/** @type {Place} */ { dims, at }) => dims.reduce((sum, dim, k) => sum * dim + at[k] + index[k], 0);
    copyRun(from.data, start(from), to.data, start(to), run);
  }
}

/** @param {Data} from @param {number} source @param {Data} to @param {number} target @param {number} count */
function copyRun(from, source, to, target, count) {
  if (Array.isArray(to)) for (let n = 0; n < count; n++) to[target + n] = from[source + n];
  else /** @type {Float32Array} */ (to).set(/** @type {Float32Array} */ (from).subarray(source, source + count), target);
}

/** @param {readonly number[]} dims */
export const product = (dims) => dims.reduce((a, b) => a * b, 1);

/** @param {Session} session @returns {Parts} */
export function partsOf(session) {
  const { classes } = /** @type {{ classes?: Parts }} */ (session?.constructor ?? {});
  if (!classes) throw new TypeError("a session of pyruntime is expected: InferenceSession.create(…) of 'pyruntime'");
  return classes;
}
