// The class of tensors, for element types that are known only when it runs: the types of onnxruntime-common name them all.

import { Tensor } from 'onnxruntime-common';

/** @typedef {import('../../common/protocol.js').NumericData | readonly (string | number | bigint)[]} Data */
/** @typedef {new (type: string, data: Data, dims: readonly number[]) => Tensor} TensorClass */

export const NewTensor = /** @type {TensorClass} */ (/** @type {unknown} */ (Tensor));
