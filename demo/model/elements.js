// Elements of an input in the array that carries its type.

/** @type {Record<string, any>} */
const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, int64: BigInt64Array, uint64: BigUint64Array, int32: Int32Array,
  uint32: Uint32Array, int16: Int16Array, uint16: Uint16Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array, int4: Uint8Array, uint4: Uint8Array,
};

/**
 * @param {string} type @param {number} size @param {string} name of the input
 * @param {ArrayLike<number | bigint | string>} [given] in place of made-up ones
 */
export function elements(type, size, name, given) {
  if (type === 'string') return given ? Array.from(given, String) : new Array(size).fill('text');
  const made = new (ARRAYS[type] ?? Float32Array)(/int4$/.test(type) ? Math.ceil(size / 2) : size);
  const isBig = type === 'int64' || type === 'uint64';
  for (let i = 0; i < made.length; i++) {
    const value = given ? given[i] : element(type, name);
    made[i] = isBig ? BigInt(Math.trunc(Number(value))) : type === 'float16' ? (given ? halfOf(Number(value)) : value) : type === 'bool' ? Number(Boolean(Number(value))) : Number(value);
  }
  return made;
}

/** A plausible element: 1 for a mask, 16000 for a sampling rate, a small index. @param {string} type @param {string} name @returns {number} */
function element(type, name) {
  if (type === 'int64' || type === 'uint64') return name === 'sr' ? 16000 : /mask/.test(name) ? 1 : /type/.test(name) ? 0 : Math.floor(64 * Math.random());
  if (type === 'bool') return 1;
  if (type === 'float16') return 0x3000 + Math.floor(0xc00 * Math.random()); // 0.125 to 1
  if (type.startsWith('float')) return 2 * Math.random() - 1;
  return Math.floor(64 * Math.random());
}

/** The bits of the nearest half float, without subnormal ones. @param {number} value */
function halfOf(value) {
  const bits = new Uint32Array(new Float32Array([value]).buffer)[0];
  const exponent = ((bits >>> 23) & 255) - 112;
  const sign = (bits >>> 16) & 0x8000;
  if (exponent <= 0) return sign;
  if (exponent >= 31) return sign | 0x7c00;
  return sign | Math.min(0x7c00, (exponent << 10) + (((bits & 0x7fffff) + 0x1000) >>> 13));
}
