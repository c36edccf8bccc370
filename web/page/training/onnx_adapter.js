// Reads `.onnx_adapter` files, ONNX Runtime's format of adapters. Twin of pyruntime/training/files/onnx_adapter.py.

import { InvalidInput } from '../../common/errors.js';

/** @import { Stored } from '../../common/safetensors.js' */

const MARK = 'TORT'; // bytes 4 to 8
const FORMAT = 1;
/** By TensorProto.DataType: name, and bytes of an element. @type {Record<number, [string, number]>} */
const TYPES = {
  1: ['float32', 4], 2: ['uint8', 1], 3: ['int8', 1], 4: ['uint16', 2], 5: ['int16', 2], 6: ['int32', 4], 7: ['int64', 8], 9: ['bool', 1],
  10: ['float16', 2], 11: ['float64', 8], 12: ['uint32', 4], 13: ['uint64', 8], 16: ['bfloat16', 2],
};

/** @param {Uint8Array} file */
export const isOnnxAdapter = (file) => String.fromCharCode(...file.subarray(4, 8)) === MARK;

/** @param {Uint8Array} file @returns {Record<string, Stored>} */
export function read(file) {
  try {
    return parameters(new FlatBuffer(file));
  } catch (error) {
    if (error instanceof InvalidInput) throw error;
    throw new InvalidInput(`the adapter is damaged: ${/** @type {Error} */ (error).message}`); // a RangeError of a DataView
  }
}

/** @param {FlatBuffer} buffer @returns {Record<string, Stored>} */
function parameters(buffer) {
  const root = buffer.target(0);
  const format = buffer.int32(buffer.field(root, 0));
  if (format !== FORMAT) throw new InvalidInput(`the adapter has format ${format}, ${FORMAT} is known`);
  const { start, count } = buffer.vector(root, 3, 4);
  return Object.fromEntries(Array.from({ length: count }, (_, n) => parameter(buffer, buffer.target(start + 4 * n))));
}

/** @param {FlatBuffer} buffer @param {number} table @returns {[string, Stored]} */
function parameter(buffer, table) {
  const name = new TextDecoder().decode(buffer.bytes(table, 0));
  const dims = buffer.vector(table, 1, 8);
  const shape = Array.from({ length: dims.count }, (_, n) => Number(buffer.view.getBigInt64(dims.start + 8 * n, true)));
  const code = buffer.int32(buffer.field(table, 2));
  const [dtype, size] = TYPES[code] ?? ['', 0];
  const bytes = buffer.bytes(table, 3);
  if (!dtype || shape.some((dim) => dim < 0) || bytes.length !== shape.reduce((product, dim) => product * dim, size)) {
    throw new InvalidInput(`the adapter is damaged: parameter "${name}" of type ${code} and dims [${shape}] has ${bytes.length} bytes`);
  }
  return [name, { dtype, shape, bytes }];
}

/** https://flatbuffers.dev/internals/ */
class FlatBuffer {
  /** @param {Uint8Array} file */
  constructor(file) {
    this.file = file;
    this.view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  }

  /** Where the offset at `at` leads. @param {number} at */
  target(at) {
    return at + this.view.getUint32(at, true);
  }

  /** Where a field of a table is; 0 if it is absent. @param {number} table @param {number} number */
  field(table, number) {
    const vtable = table - this.view.getInt32(table, true);
    const offset = 4 + 2 * number < this.view.getUint16(vtable, true) ? this.view.getUint16(vtable + 4 + 2 * number, true) : 0;
    return offset && table + offset;
  }

  /** @param {number} at 0: of an absent field */
  int32(at) {
    return at ? this.view.getInt32(at, true) : 0;
  }

  /** Where the elements of a vector begin, and their number. @param {number} table @param {number} number @param {number} width bytes of an element */
  vector(table, number, width) {
    const at = this.field(table, number);
    if (!at) return { start: 0, count: 0 };
    const start = this.target(at) + 4;
    const count = this.view.getUint32(start - 4, true);
    if (start + count * width > this.file.length) throw new InvalidInput('the adapter is damaged: a vector points outside of the file');
    return { start, count };
  }

  /** A string, or a vector of bytes. @param {number} table @param {number} number */
  bytes(table, number) {
    const { start, count } = this.vector(table, number, 1);
    return this.file.subarray(start, start + count);
  }
}
