// Numbers of 16 bits.

/** The number that a float16 encodes. @param {number} bits */
export function halfValue(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * fraction / 1024);
}

const word = new Uint32Array(1);
const real = new Float32Array(word.buffer);

/** The number that a bfloat16 encodes. @param {number} bits */
export function shortValue(bits) {
  word[0] = bits << 16;
  return real[0];
}

/** The float16 nearest to a float32, by its bits; ties go to even. @param {number} bits */
export function halfOf(bits) {
  const sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 0xff) - 112;
  const fraction = bits & 0x7fffff;
  if (exponent === 143) return sign | (fraction ? 0x7e00 : 0x7c00);
  if (exponent < -10) return sign;
  const shift = exponent < 1 ? 14 - exponent : 13;
  const whole = exponent < 1 ? fraction | 0x800000 : (exponent << 23) | fraction;
  const kept = exponent > 30 ? 0x7c00 : whole >>> shift;
  const rest = whole & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  return sign | Math.min(0x7c00, kept + (exponent <= 30 && (rest > half || rest === half && kept & 1) ? 1 : 0));
}

/** The numbers of a tensor of floats, in float32. @param {Uint8Array} bytes @param {string} dtype @returns {Float32Array} */
export function floatsOf(bytes, dtype) {
  const { buffer } = bytes.slice();
  if (dtype === 'float32') return new Float32Array(buffer);
  if (dtype === 'float64') return Float32Array.from(new Float64Array(buffer));
  return Float32Array.from(new Uint16Array(buffer), dtype === 'float16' ? halfValue : shortValue);
}

/** Numbers in a type of floats. @param {string} dtype @param {Float32Array} numbers */
export function floatsIn(dtype, numbers) {
  if (dtype === 'float64') return Float64Array.from(numbers);
  const bits = new Uint32Array(numbers.buffer, numbers.byteOffset, numbers.length);
  if (dtype === 'float16') return Uint16Array.from(bits, halfOf);
  return dtype === 'bfloat16' ? Uint16Array.from(bits, shortOf) : numbers;
}

/** The bfloat16 nearest to a float32, by its bits; ties go to even. @param {number} bits */
const shortOf = (bits) => ((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16);
