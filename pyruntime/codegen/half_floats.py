"""float16 and bfloat16 for targets that only compute in float32: conversions by int32 arithmetic on their bits.

`legalize(code)` returns the same loop form with uint16 buffers in place of half-float buffers, and float32 values in
place of half-float values, rounded to nearest even where they are stored or cast.
"""

from __future__ import annotations

import math
from dataclasses import replace
from operator import is_

from pyruntime.codegen.loop_ir import LoopCode, map_expressions
from pyruntime.ir.dtype import BF16, F16, F32, I16, I32, U16, DType
from pyruntime.ir.expr import Expr, bitcast, cast, clip, const, isnan, select, transform, with_args
from pyruntime.ir.kernel import Accum, Stmt, Store
from pyruntime.ir.statements import nodes, rebuild, statements

HALVES = (F16, BF16)


def decode(bits: Expr, dtype: DType) -> Expr:
    """The float32 value of 16 bits given as int32."""
    if dtype is BF16:
        return bitcast(bits << 16, F32)
    sign = (bits & 0x8000) << 16
    magnitude = (bits & 0x7FFF) << 13
    scaled = bitcast(bitcast(magnitude, F32) * float(2**112), I32)  # rebias the exponent; exact for denormals too
    special = magnitude | 0x7F800000  # all exponent bits set: infinity or NaN
    return bitcast(select((bits & 0x7C00) == 0x7C00, special, scaled) | sign, F32)


def encode(x: Expr, dtype: DType) -> Expr:
    """The 16 bits, as int32, of a float32 rounded to nearest even."""
    bits = bitcast(x, I32)
    if dtype is BF16:
        top = (bits >> 16) & 0xFFFF
        rounded = ((bits + 0x7FFF + (top & 1)) >> 16) & 0xFFFF
        return select(isnan(x), top | 0x40, rounded)
    sign = (bits >> 16) & 0x8000
    magnitude = bits & 0x7FFFFFFF
    # below 2^-14 the half is denormal: adding 0.5 lets the float32 adder round at the half's last place
    small = bitcast(bitcast(magnitude, F32) + 0.5, I32) - 0x3F000000
    odd = (magnitude >> 13) & 1
    normal = (magnitude - (112 << 23) + 0xFFF + odd) >> 13
    huge = select(isnan(x), const(0x7E00, I32), const(0x7C00, I32))
    out = select(magnitude < 0x38800000, small, select(magnitude >= 0x47800000, huge, normal))
    return out | sign


def rounded(x: Expr, dtype: DType) -> Expr:
    """A float32 rounded to a half type, still as float32: 10 instructions; encoding and decoding take 30."""
    if dtype is BF16:
        return decode(encode(x, dtype), dtype)
    bits = bitcast(x, I32)
    # An addition rounds at the last place of its sum. Adding 1.5 · 2^13 times the power of two below x puts that place
    # where the half type's last place is, from the least normal half to the first power that overflows.
    power = clip(bits & 0x7F800000, 113 << 23, 143 << 23)
    large = bitcast(power + (13 << 23 | 1 << 22), F32)
    near = ((x + large) - large) * float(2**112) * float(2**-112)  # 65536 and more becomes infinity
    return bitcast(bitcast(near, I32) | (bits & -(1 << 31)), F32)  # restores the sign, which the sum loses for -0


def legalize(code: LoopCode) -> LoopCode:
    """The loop form without float16 and bfloat16."""
    if not _has_halves(code):
        return code
    buffers = tuple([(U16 if d in HALVES else d, w) for d, w in code.buffers])
    if _only_moves(code.body):
        bits: dict[int, Expr] = {}
        return map_expressions(replace(code, buffers=buffers), lambda e: transform(e, _as_bits, bits))
    halves = {n: d for n, (d, _) in enumerate(code.buffers) if d in HALVES}
    memo: dict[int, Expr] = {}
    return replace(code, buffers=buffers, body=[_statement(s, halves, memo) for s in code.body])


def in_float32(code: LoopCode) -> LoopCode:
    """Like `legalize`, for printers that load and store half floats themselves. Values in between are float32, and only
    casts round them. Constants and results of functions are not rounded: e^12 overflows float16, but x / e^12 does
    not."""
    return map_expressions(code, lambda e: transform(e, _between, {})) if _has_halves(code) else code


def _between(e: Expr, args: tuple[Expr, ...]) -> Expr:
    if e.op == "cast":
        return args[0] if e.dtype in HALVES and _is_rounded(e.args[0], e.dtype) else with_args(e, args, e.dtype)
    if e.op == "bitcast":
        return with_args(e, (cast(args[0], e.args[0].dtype),), e.dtype)
    moves = e.op in ("var", "const", "lane", "guard") and all(map(is_, args, e.args))
    if moves or e.op in ("load", "load4"):
        return with_args(e, args, e.dtype)
    wide = tuple([cast(a, F32) if a.dtype in HALVES else a for a in args])
    return with_args(e, wide, F32 if e.dtype in HALVES else e.dtype)


def _is_rounded(e: Expr, dtype: DType) -> bool:
    """Whether the value is one of the half type already, as float32 or as the half type: it is loaded or cast."""
    source = e.args[0] if e.op == "cast" and e.dtype is F32 else e
    return source.dtype is dtype and source.op in ("load", "load4", "cast", "bitcast")


def _has_halves(code: LoopCode) -> bool:
    return any(d in HALVES for d, _ in code.buffers) or any(x.dtype in HALVES for x in nodes(code.body))


def _only_moves(body: list[Stmt]) -> bool:
    """Whether statements only load, select and store half floats, so that their bits can be moved instead."""
    sums = any(isinstance(s, Accum) and s.value.dtype in HALVES for s in statements(body))
    return not sums and all(map(_moves, nodes(body)))


def _moves(e: Expr) -> bool:
    if e.dtype in HALVES:
        return e.op in ("load", "var", "guard", "select") or e.op == "const" and e.value == 0
    return not any(a.dtype in HALVES for a in e.args)


def _as_bits(e: Expr, args: tuple[Expr, ...]) -> Expr:
    value = e.value
    if e.op == "const" and e.dtype in HALVES:
        value = 0x8000 if math.copysign(1, e.value) < 0 else 0
    return Expr(e.op, args, U16 if e.dtype in HALVES else e.dtype, value)


def _legal(e: Expr, args: tuple[Expr, ...]) -> Expr:
    if e.op == "load" and e.dtype in HALVES:
        return decode(cast(Expr("load", args, U16, e.value), I32), e.dtype)
    if e.op == "cast" and e.dtype in HALVES:
        x = args[0] if args[0].dtype is F32 else cast(args[0], F32)
        return x if _is_rounded(e.args[0], e.dtype) else rounded(x, e.dtype)
    if e.op == "cast" and e.args[0].dtype in HALVES:
        return cast(args[0], e.dtype)
    if e.op == "bitcast" and e.dtype in HALVES:
        return decode(cast(args[0], I32) & 0xFFFF, e.dtype)
    if e.op == "bitcast" and e.args[0].dtype in HALVES:
        return cast(encode(args[0], e.args[0].dtype), e.dtype if e.dtype in (U16, I16) else U16)
    if e.dtype in HALVES:
        return Expr(e.op, args, F32, e.value)
    return with_args(e, args, e.dtype)


def _statement(s: Stmt, halves: dict[int, DType], memo: dict[int, Expr]) -> Stmt:
    def e(x: Expr) -> Expr:
        return transform(x, _legal, memo)

    if isinstance(s, Store):
        coords = tuple([e(c) for c in s.coords])
        if s.target not in halves:
            return Store(s.target, coords, e(s.value))
        inner = s.value.args[0] if s.value.op == "cast" else s.value  # the store rounds
        x = e(inner)
        return Store(s.target, coords, cast(encode(x if x.dtype is F32 else cast(x, F32), halves[s.target]), U16))
    return rebuild(s, e, lambda body: [_statement(b, halves, memo) for b in body])
