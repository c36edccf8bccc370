// What the browser's WebAssembly can do.

/** (func (param v128 v128 v128) (result v128) local.get 0 local.get 1 local.get 2 f32x4.relaxed_madd) */
const RELAXED = [
  0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0, // magic, version
  1, 8, 1, 0x60, 3, 0x7b, 0x7b, 0x7b, 1, 0x7b, // type
  3, 2, 1, 0, // function
  10, 13, 1, 11, 0, 0x20, 0, 0x20, 1, 0x20, 2, 0xfd, 0x85, 0x02, 0x0b, // code
];

/** @returns {boolean} */
export const hasRelaxedSimd = () => WebAssembly.validate(Uint8Array.from(RELAXED));
