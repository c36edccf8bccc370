"""WGSL functions that printed kernels call. A shader contains only those it uses.

WGSL implementations may assume that floats are finite. So NaN is recognised by its bits, and infinity is made from bits
that the shader compiler cannot evaluate. Integer division by 0 gives 0; shifts past the width give 0 (or the sign).

Spec: https://www.w3.org/TR/WGSL/#floating-point-evaluation
"""

from __future__ import annotations

import re

# The fault record: number of the node, extent, index. Only the first fault is recorded.
CHECKED = """
fn checked(at: i32, extent: i32, given: i32, node: i32) -> i32 {
  if (u32(at) < u32(extent)) { return at; }
  if (atomicCompareExchangeWeak(&faults[0], 0, node).exchanged) {
    atomicStore(&faults[1], extent);
    atomicStore(&faults[2], given);
  }
  return 0;
}
"""

_TEXT = """
fn of_bits(x: u32) -> f32 { var bits = x; return bitcast<f32>(bits); }
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn is_true(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) != 0u; }
fn max_f(a: f32, b: f32) -> f32 { return select(b, a, a > b || is_nan(a)); }
fn min_f(a: f32, b: f32) -> f32 { return select(b, a, a < b || is_nan(a)); }
fn div_i(a: i32, b: i32) -> i32 { return select(a / select(b, 1, b == 0), 0, b == 0); }
fn rem_i(a: i32, b: i32) -> i32 { return select(a % select(b, 1, b == 0), 0, b == 0); }
fn mod_i(a: i32, b: i32) -> i32 { let r = rem_i(a, b); return select(r, r + b, r != 0 && (r ^ b) < 0); }
fn div_u(a: u32, b: u32) -> u32 { return select(a / select(b, 1u, b == 0u), 0u, b == 0u); }
fn rem_u(a: u32, b: u32) -> u32 { return select(a % select(b, 1u, b == 0u), 0u, b == 0u); }
fn rem_f(x: f32, y: f32) -> f32 {
  let a = abs(x);
  let b = abs(y);
  if (is_nan(x) || is_nan(y) || b == 0.0 || a > 3.4028234663852886e38) { return of_bits(0x7fc00000u); }
  if (b > 3.4028234663852886e38) { return x; }
  var r = a;
  var scaled = b;
  while (scaled <= r * 0.5) { scaled = scaled * 2.0; }
  while (scaled >= b) {
    if (r >= scaled) { r = r - scaled; }
    scaled = scaled * 0.5;
  }
  return select(r, -r, x < 0.0);
}
fn mod_f(x: f32, y: f32) -> f32 { let r = rem_f(x, y); return select(r, r + y, r != 0.0 && (r < 0.0) != (y < 0.0)); }
fn shl_i(a: i32, b: u32, bits: u32) -> i32 { return select(a << (b & 31u), 0, b >= bits); }
fn shl_u(a: u32, b: u32, bits: u32) -> u32 { return select(a << (b & 31u), 0u, b >= bits); }
fn shr_i(a: i32, b: u32, bits: u32) -> i32 { return a >> min(b, bits - 1u); }
fn shr_u(a: u32, b: u32, bits: u32) -> u32 { return select(a >> (b & 31u), 0u, b >= bits); }
fn pow_u(a: u32, b: u32) -> u32 {
  var out = 1u;
  var base = a;
  for (var n = b; n != 0u; n = n >> 1u) {
    if ((n & 1u) != 0u) { out = out * base; }
    base = base * base;
  }
  return out;
}
fn pow_i(a: i32, b: i32) -> i32 {
  if (b >= 0) { return bitcast<i32>(pow_u(bitcast<u32>(a), bitcast<u32>(b))); }
  if (a == 1) { return 1; }
  if (a == -1) { return select(1, -1, (b & 1) != 0); }
  return 0;
}
fn pow_f(a: f32, b: f32) -> f32 {
  if (b == 0.0 || a == 1.0) { return 1.0; }
  let whole = floor(b) == b;
  if (a < 0.0 && !whole) { return of_bits(0x7fc00000u); }
  let odd = whole && abs(b) < 16777216.0 && (i32(b) & 1) != 0;
  var out = 1.0;
  if (whole && abs(b) <= 16.0) {
    let n = i32(abs(b));
    for (var k = 0; k < n; k++) { out = out * abs(a); }
    if (b < 0.0) { out = 1.0 / out; }
  } else {
    out = pow(abs(a), b);
  }
  return select(out, -out, (bitcast<u32>(a) >> 31u) != 0u && odd);
}
fn to_i32(x: f32) -> i32 {
  if (is_nan(x)) { return 0; }
  if (x >= 2147483648.0) { return 2147483647; }
  if (x <= -2147483648.0) { return bitcast<i32>(0x80000000u); }
  return i32(x);
}
fn to_u32(x: f32) -> u32 {
  if (is_nan(x) || x <= 0.0) { return 0u; }
  if (x >= 4294967296.0) { return 0xffffffffu; }
  return u32(x);
}
fn from_bf16(bits: u32) -> f32 { return bitcast<f32>(bits << 16u); }
fn to_bf16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if (is_nan(x)) { return (bits >> 16u) | 0x40u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
fn from_f16(bits: u32) -> f32 {
  let sign = (bits & 0x8000u) << 16u;
  let magnitude = bits & 0x7fffu;
  if (magnitude < 0x400u) { return bitcast<f32>(bitcast<u32>(f32(magnitude) * 5.9604644775390625e-8) | sign); }
  let special = select(0x38000000u, 0x70000000u, magnitude >= 0x7c00u);
  return of_bits(((magnitude << 13u) + special) | sign);
}
fn to_f16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) { return sign | 0x7e00u; }
  if (magnitude >= 0x47800000u) { return sign | 0x7c00u; }
  if (magnitude < 0x38800000u) { return sign | (bitcast<u32>(bitcast<f32>(magnitude) + 0.5) - 0x3f000000u); }
  return sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u);
}
"""

FUNCTIONS = {text[3 : text.index("(")]: text for text in re.split(r"\n(?=fn )", _TEXT.strip())}
_USES = {
    name: [other for other in FUNCTIONS if other != name and re.search(rf"\b{other}\(", text)]
    for name, text in FUNCTIONS.items()
}


def text_of(names: set[str]) -> str:
    """The text of these functions and of those that they call."""
    wanted = set(names)
    todo = list(names)
    while todo:
        for other in _USES[todo.pop()]:
            if other not in wanted:
                wanted.add(other)
                todo.append(other)
    return "".join(text + "\n" for name, text in FUNCTIONS.items() if name in wanted)
