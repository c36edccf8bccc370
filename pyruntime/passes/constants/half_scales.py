"""Stores float32 scales and zero points of quantised weights as half floats on GPUs, if no value changes by that.

Scales of models whose weights were half floats or bfloat16 before they were quantised have few bits, so that a power of
two brings all of them into the range of normal half floats. Kernels multiply by its inverse, which is exact, too. With
blocks of 32, a float32 scale is a fifth of the bytes of 4-bit weights.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import all_kernels, unreshaped
from pyruntime.ir.dtype import F16, F32, I8, U8
from pyruntime.ir.expr import Expr, cast, index, rewrite, walk
from pyruntime.ir.kernel import Alias, Block, Leaf, Map, Reduce, Tensor
from pyruntime.onnx.graph import Weight
from pyruntime.onnx.weight_values import unpack

LEAST = 1 << 10  # elements: smaller constants stay as they are
_SAMPLE = 64  # elements that are looked at before all are
_LOST = (1 << 13) - 1  # the bits of a float32's mantissa that a half float lacks
_LEAST = 27  # of 2^-100: the factors of smaller elements may not be normal numbers
_LOWEST, _HIGHEST = 113, 142  # the exponents of normal half floats, with the bias of float32


def store_as_halves(block: Block) -> None:
    """Let kernels of this block and its inner blocks read such constants from half floats, which new maps at the start
    of the block make. A constant that a kernel also reads for something else stays float32."""
    kernels = [k for k in all_kernels(block) if not isinstance(k, Alias)]
    steps = {id(k): {t.uid: t for t in _steps(k.expr)} for k in kernels if isinstance(k, (Map, Reduce))}
    others = {unreshaped(t).uid for k in kernels for t in k.inputs if t.uid not in steps.get(id(k), ())}
    halves: dict[int, tuple[Tensor, int]] = {}
    for t in {uid: t for found in steps.values() for uid, t in found.items()}.values():
        leaf = unreshaped(t)
        assert isinstance(leaf.kernel, Leaf)
        shift = None if leaf.uid in others else exact_shift(leaf.kernel.value)
        if shift is not None:
            scaled = Map(cast(_times(t.at(*map(index, range(t.rank))), shift), F16)).making(t.shape, F16)
            halves[t.uid] = scaled.out, -shift
            block.kernels.insert(0, scaled)

    def half(e: Expr) -> Expr | None:
        if e.op != "at" or e.value.uid not in halves:
            return None
        stored, shift = halves[e.value.uid]
        return _times(cast(stored.at(*e.args), F32), shift)

    for k in kernels:
        if isinstance(k, (Map, Reduce)) and halves.keys() & steps[id(k)].keys():
            k.expr = rewrite(k.expr, half)


def made_halves(init: Block) -> list[Tensor]:
    """The half floats that the init block makes of float32: no reader should convert the float32 again."""
    maps = [k for k in init.kernels if isinstance(k, Map) and k.out.dtype is F16]
    return [k.out for k in maps if any(t.dtype is F32 for t in k.inputs)]


def _times(e: Expr, shift: int) -> Expr:
    """e · 2^shift"""
    return e * 2.0**shift if shift else e


def exact_shift(weight: Weight) -> int | None:
    """The power of two that makes each float32 element a zero or a normal half float without rounding, 0 if possible;
    None if there is none."""
    words = memoryview(unpack(weight)).cast("I")
    if any(word & _LOST for word in words[:_SAMPLE]):
        return None
    distinct = {*words}
    if any(word & _LOST for word in distinct):
        return None
    exponents = {word >> 23 & 255 for word in distinct if word & ~(1 << 31)}
    lowest, highest = min(exponents, default=_LOWEST), max(exponents, default=_LOWEST)
    if lowest < _LEAST or highest == 255 or highest - lowest > _HIGHEST - _LOWEST:
        return None
    return 0 if _LOWEST <= lowest and highest <= _HIGHEST else _HIGHEST - highest


def _steps(e: Expr) -> Iterator[Tensor]:
    """The large float32 weights that are multiplied with codes, or subtracted from them."""
    for x in walk(e):
        if x.op in ("mul", "sub") and any(_reads_codes(a) for a in x.args):
            for a in x.args:
                at = a.args[0] if a.op == "cast" else a
                if at.op == "at" and _is_large(at.value):
                    yield at.value


def _reads_codes(e: Expr) -> bool:
    return any(x.op == "at" and x.value.dtype in (U8, I8) and sh.is_static(x.value.shape) for x in walk(e))


def _is_large(t: Tensor) -> bool:
    leaf = unreshaped(t).kernel
    is_weight = isinstance(leaf, Leaf) and leaf.kind == "weight" and isinstance(leaf.value, Weight)
    return is_weight and t.dtype is F32 and sh.size(t.shape) >= LEAST
