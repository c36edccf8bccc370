// Element types: the engine's storage of each, and that of onnxruntime's tensors.

/** @import { NumericData, WireTensor } from './protocol.js' */
/**
 * The class of a typed array.
 * @typedef {{ new (from: ArrayBufferLike, offset: number, length: number): NumericData, new (from: number | NumericData): NumericData,
 *   from(values: ArrayLike<unknown>, change: (value: never) => number | bigint): NumericData }} View
 */

/** @type {Record<string, View>} */
const VIEWS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, int16: Int16Array, int32: Int32Array,
  int64: BigInt64Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
  float16: /** @type {{ Float16Array?: View }} */ (/** @type {unknown} */ (globalThis)).Float16Array ?? Uint16Array, bfloat16: Uint16Array, int4: Int8Array, int2: Int8Array,
};

/** Bytes for a type that VIEWS lacks. @param {string} dtype @returns {View} */
const classOf = (dtype) => VIEWS[dtype] ?? Uint8Array;

/** A view of bytes as elements of a type. @param {Uint8Array} bytes aligned @param {string} dtype @returns {NumericData} */
export const viewOf = ({ buffer, byteOffset, length }, dtype) => new (classOf(dtype))(buffer, byteOffset, length / elementSize(dtype));

/** Whether tensors of the API pack two elements into a byte. The engine stores each in a byte. @param {string} dtype */
const isPacked = (dtype) => dtype === 'int4' || dtype === 'uint4';

/** @param {string} dtype */
export function elementSize(dtype) {
  const bytes = /** @type {{ BYTES_PER_ELEMENT?: number }} */ (/** @type {unknown} */ (classOf(dtype))).BYTES_PER_ELEMENT;
  return dtype === 'complex64' ? 8 : dtype === 'complex128' ? 16 : (bytes ?? 1);
}

/**
 * Writes a feed's elements into memory. Bools become 0 or 1, because kernels compare and add their bytes.
 * @param {NumericData} data @param {string} dtype @param {Uint8Array} into
 */
export function store(data, dtype, into) {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (isPacked(dtype) && bytes.length !== into.length) unpackBits(bytes, 4, dtype === 'int4', into);
  else into.set(bytes);
  if (dtype === 'bool') for (let i = 0; i < into.length; i++) if (into[i] > 1) into[i] = 1;
}

/**
 * A tensor for the page, with its own memory or that of `target`.
 * @param {Uint8Array} bytes @param {string} dtype @param {number[]} dims @param {WireTensor | null | undefined} target
 * @param {boolean} [fresh] whether the tensor can own the bytes, without a copy
 * @returns {WireTensor}
 */
export function load(bytes, dtype, dims, target, fresh = false) {
  const into = /** @type {NumericData | undefined} */ (target?.data);
  if (into && into.byteLength === bytes.length) {
    new Uint8Array(into.buffer, into.byteOffset, into.byteLength).set(bytes);
    return { type: dtype, dims, data: into };
  }
  const copy = isPacked(dtype) ? packNibbles(bytes) : fresh ? bytes : bytes.slice();
  const own = copy.buffer instanceof ArrayBuffer ? copy : new Uint8Array(copy);
  const view = isPacked(dtype) ? Uint8Array : classOf(dtype);
  return { type: dtype, dims, data: new view(own.buffer, 0, own.byteLength / (isPacked(dtype) ? 1 : elementSize(dtype))) };
}

/** @param {Uint8Array} bytes with an element each @returns {Uint8Array} */
function packNibbles(bytes) {
  const packed = new Uint8Array(Math.ceil(bytes.length / 2));
  bytes.forEach((value, i) => {
    packed[i >> 1] |= (value & 15) << (4 * (i & 1));
  });
  return packed;
}

/**
 * Unpacks elements of `bits` bits, low bits first, to a byte each.
 * @param {Uint8Array} packed @param {number} bits @param {boolean} signed @param {Uint8Array} into
 */
export function unpackBits(packed, bits, signed, into) {
  const mask = (1 << bits) - 1;
  const sign = signed ? 1 << (bits - 1) : 0;
  for (let i = 0; i < into.length; i++) {
    const at = i * bits;
    const byte = Math.floor(at / 8);
    const value = ((packed[byte] | (packed[byte + 1] << 8)) >> (at % 8)) & mask;
    into[i] = (value ^ sign) - sign;
  }
}

/** Elements as numbers, for symbols. @param {Uint8Array} bytes @param {string} dtype @returns {number[]} */
export const numbers = (bytes, dtype) => Array.from(elements(bytes, dtype), Number);

/**
 * Elements for Python: as text if JSON or a double cannot represent one.
 * @param {Uint8Array} bytes @param {string} dtype @returns {(number | string)[]}
 */
export function exactNumbers(bytes, dtype) {
  return Array.from(elements(bytes, dtype), (x) => {
    const number = Number(x);
    if (Object.is(number, -0)) return '-0';
    return Number.isSafeInteger(number) || (typeof x === 'number' && Number.isFinite(x)) ? number : String(x);
  });
}

/** @param {Uint8Array} bytes @param {string} dtype @returns {ArrayLike<number | bigint>} a copy */
function elements(bytes, dtype) {
  const own = bytes.slice();
  return viewOf(own.buffer instanceof ArrayBuffer ? own : new Uint8Array(own), dtype);
}

/** @param {(number | bigint | boolean | string)[]} values @param {string} dtype @returns {NumericData} */
export function fromNumbers(values, dtype) {
  return classOf(dtype).from(values, dtype.endsWith('int64') ? BigInt : Number);
}

/** The typed array class of data; a Buffer of Node.js is a Uint8Array. @param {NumericData} data @returns {View} */
export const arrayClass = (data) => /** @type {Record<string, View>} */ (/** @type {unknown} */ (globalThis))[data[Symbol.toStringTag]];

/** Copies data of one class. @param {NumericData} into @param {NumericData} from @param {number} [at] place of the first element */
export const fill = (into, from, at) => /** @type {{ set(from: NumericData, at?: number): void }} */ (into).set(from, at);

/**
 * Data whose class Tensor accepts: jest, vitest and other contexts of Node.js have classes of their own, unlike messages of workers.
 * @param {NumericData | string[]} data @returns {NumericData | string[]}
 */
export function own(data) {
  if (Array.isArray(data)) return data;
  const Own = arrayClass(data);
  return data instanceof Own ? data : new Own(data.buffer, data.byteOffset, data.length);
}
