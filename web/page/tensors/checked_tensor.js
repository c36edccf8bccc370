// onnxruntime-common's class of tensors, with errors that are ours.

import { Tensor as Base } from 'onnxruntime-common';
import { InvalidInput } from '../../common/errors.js';

const HINT = "new ort.Tensor('float32', new Float32Array([1, 2, 3, 4]), [2, 2])";

/** Makes tensors of onnxruntime-common's class. Errors: InvalidInput for data, dims or a type that do not fit. */
export const Tensor = new Proxy(Base, {
  construct(target, args, kind) {
    try {
      return Reflect.construct(target, args, kind);
    } catch (cause) {
      const { message } = /** @type {Error} */ (cause); // it has the source of the array's class
      throw new InvalidInput(message.replace(/function (\w+)\(\) \{ \[native code\] \}/, '$1'), { hint: HINT, cause });
    }
  },
});
