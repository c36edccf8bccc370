// Features of the browser's WebAssembly.

/** (func (param v128 v128 v128) (result v128) local.get 0 local.get 1 local.get 2 f32x4.relaxed_madd) */
const RELAXED = [
  0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0, // magic, version
  1, 8, 1, 0x60, 3, 0x7b, 0x7b, 0x7b, 1, 0x7b, // type
  3, 2, 1, 0, // function
  10, 13, 1, 11, 0, 0x20, 0, 0x20, 1, 0x20, 2, 0xfd, 0x85, 0x02, 0x0b, // code
];

/** (func (export "f") (param i32 i32) (result i32) four products of two bytes, added up by i32x4.relaxed_dot_i8x16_i7x16_add_s) */
const DOT = [
  0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0, // magic, version
  1, 7, 1, 0x60, 2, 0x7f, 0x7f, 1, 0x7f, // type
  3, 2, 1, 0, // function
  7, 5, 1, 1, 0x66, 0, 0, // export
  10, 22, 1, 20, 0, 0x20, 0, 0xfd, 0x0f, 0x20, 1, 0xfd, 0x0f, 0x41, 0, 0xfd, 0x11, 0xfd, 0x93, 0x02, 0xfd, 0x1b, 0, 0x0b, // code
];

/** (import of two memories) */
const MEMORIES = [
  0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0, // magic, version
  2, 15, 2, 1, 0x65, 1, 0x6d, 2, 0, 1, 1, 0x65, 1, 0x6e, 2, 0, 1, // import
];

/** @returns {boolean} whether a module may have several memories */
export const hasMemories = () => WebAssembly.validate(Uint8Array.from(MEMORIES));

/** The features that generated code may use. @param {unknown} [fixed] whether to leave out relaxed SIMD */
export const codeFeatures = (fixed) => ({
  memories: hasMemories(),
  ...(fixed ? { relaxed: false } : { relaxed: hasRelaxedSimd(), dots: exactDots() }),
});

/** @returns {boolean} */
export const hasRelaxedSimd = () => WebAssembly.validate(Uint8Array.from(RELAXED));

/**
 * Signedness of the relaxed dot product's second operand; "" if sums of byte products may saturate. The processor decides this
 * (docs/design/quantisation.md#8-bit-dot-products).
 * @returns {'' | 'signed' | 'unsigned'}
 */
export function exactDots() {
  if (!hasRelaxedSimd()) return '';
  const { f } = /** @type {{ f: (signed: number, second: number) => number }} */ (/** @type {unknown} */ (
    new WebAssembly.Instance(new WebAssembly.Module(Uint8Array.from(DOT))).exports));
  const exact = (/** @type {number[]} */ seconds) => seconds.every((b) => [-128, -1, 127].every((a) => f(a, b) === 4 * a * b));
  return exact([0, 1, 127, 128, 255]) ? 'unsigned' : exact([0, 1, 127, -128, -1]) ? 'signed' : '';
}
