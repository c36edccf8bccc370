"""Weights as codes of few bits: weight = (code - zero point) · scale, with a scale and a zero point for each block.

The engine computes the codes: this file writes the small models that do, so that no host needs NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import NamedTuple

from pyruntime.ir.dtype import F16, F32, F64, I64, U8, DType
from pyruntime.onnx.graph import Weight
from pyruntime.onnx.write import GraphWriter, value_info

# A range smaller than that of a block's values rounds most values less, and cuts the outermost off. Of these factors
# the block keeps the one with the least squared error.
_SHRINK = {4: (1.0, 0.96, 0.92, 0.88, 0.84, 0.8), 8: (1.0,)}
_CHUNK = 1 << 22  # weights of a run


class Span(NamedTuple):
    """Elements of a weight: `rows` times `size` bytes, `stride` bytes apart, from byte `start` on; dims: as a tensor"""

    start: int
    size: int
    stride: int
    rows: int
    dims: tuple[int, ...]

    def read(self, weight: Weight) -> bytes:
        assert weight.source is not None
        first = weight.offset + self.start
        return b"".join(weight.source.read(first + n * self.stride, self.size) for n in range(self.rows))


@dataclass(frozen=True, slots=True)
class Coding:
    """How a weight becomes codes.

    bits: 4 or 8, or 16 for half floats; block: weights of a scale; layout: "rows" of blocks, "columns" for a matrix
    whose columns are blocks, "channels" for filters whose blocks are input channels; codes_in_row: those that are kept
    of a row, or 0 for all of its blocks; factor: of the scales
    """

    bits: int
    block: int
    layout: str = "rows"
    codes_in_row: int = 0
    factor: float = 1.0


def spans(weight: Weight, coding: Coding | None = None) -> Iterator[Span]:
    """The weight in parts whose codes follow one another. Without a coding, parts of any elements."""
    count, width = prod(weight.shape), weight.dtype.size
    if coding is None or coding.bits == 16:
        for at in range(0, count, _CHUNK):
            n = min(_CHUNK, count - at)
            yield Span(at * width, n * width, 0, 1, (n,))
    elif coding.layout == "channels":
        yield Span(0, count * width, 0, 1, (*weight.shape[:2], prod(weight.shape[2:])))
    elif coding.layout == "columns":
        rows, columns = weight.shape
        each = max(1, _CHUNK // rows)
        for at in range(0, columns, each):
            n = min(each, columns - at)
            yield Span(at * width, n * width, columns * width, rows, (rows, n))
    else:
        rows, columns = weight.shape[0], prod(weight.shape[1:])
        each = max(1, _CHUNK // columns)
        for at in range(0, rows, each):
            n = min(each, rows - at)
            dims = (n * columns // coding.block, coding.block) if _is_flat(coding, columns) else (n, columns)
            yield Span(at * columns * width, n * columns * width, 0, 1, dims)


def _is_flat(coding: Coding, columns: int) -> bool:
    """Whether rows are whole blocks, and the zero points of a row whole bytes, so that the lengths of rows do not
    matter."""
    if coding.bits == 16:
        return True
    return columns % (coding.block * 8 // coding.bits) == 0 and not coding.codes_in_row


def coding_model(weight: Weight, coding: Coding) -> bytes:
    """A model of the input "w", a `Span`, and the outputs "codes", "scales" and "zeros", whose bytes are those of the
    new weights; for 16 bits only "codes". It is the same for weights that differ in sizes which do not matter."""
    columns = weight.shape[0] if coding.layout == "columns" else prod(weight.shape[1:])
    sizes = weight.shape if coding.layout == "channels" else () if _is_flat(coding, columns) else (columns,)
    return _coding_model(weight.dtype, coding, sizes)


@cache
def _coding_model(dtype: DType, coding: Coding, sizes: tuple[int, ...]) -> bytes:
    """sizes: of the weight, as far as they matter: of filters all, of a matrix the length of a row, or none"""
    g = GraphWriter()
    if coding.bits == 16:
        g("Cast", "w", output="codes", to=F16.code)
        return g.model([value_info("w", dtype, ("n",))], [value_info("codes", F16, ("n",))])
    shape: tuple[int | str, ...] = ("n", sizes[0] if sizes else "k")
    rows = g("Cast", "w", to=F32.code)
    if coding.layout == "columns":
        shape = shape[::-1]
        rows = g("Transpose", rows, perm=[1, 0])
    filters = (sizes[0], prod(sizes[2:])) if coding.layout == "channels" else ()
    if filters:
        shape = (*sizes[:2], filters[1])
        rows = g("Transpose", rows, perm=[0, 2, 1])
    columns = sizes[1] if filters else sizes[0] if sizes else 0
    blocks = -(-columns // coding.block)
    if columns % coding.block:
        rows = g("Pad", rows, g.constant(I64, *[0] * (2 * len(shape) - 1), blocks * coding.block - columns))
    if coding.layout != "rows" or sizes:
        rows = g("Reshape", rows, g.constant(I64, -1, coding.block))
    code, scale, zero = _coded(g, rows, coding, dtype)
    if kept := coding.codes_in_row or (columns if filters else 0):
        code = g("Reshape", code, g.constant(I64, -1, blocks * coding.block))
        code = g("Slice", code, g.constant(I64, 0), g.constant(I64, kept), g.constant(I64, 1))
    if not filters and coding.bits == 4 and blocks % 2:  # the zero points of a row fill whole bytes
        zero = g("Pad", g("Reshape", zero, g.constant(I64, -1, blocks)), g.constant(I64, 0, 0, 0, 1))
    scale = g("Cast", _placed(g, scale, filters, blocks), to=dtype.code)
    g("Reshape", scale, g.constant(I64, -1), output="scales")
    _packed(g, _placed(g, code, filters, columns), coding.bits, prod(filters) * columns if filters else 0, "codes")
    _packed(g, _placed(g, zero, filters, blocks), coding.bits, prod(filters) * blocks if filters else 0, "zeros")
    outputs = [value_info("codes", U8, ("c",)), value_info("scales", dtype, ("s",)), value_info("zeros", U8, ("z",))]
    return g.model([value_info("w", dtype, shape)], outputs)


def _placed(g: GraphWriter, x: str, filters: tuple[int, ...], width: int) -> str:
    """filters: their number and their places; (filters · places, width) becomes (filters, width, places)"""
    if not filters:
        return x
    return g("Transpose", g("Reshape", x, g.constant(I64, *filters, width)), perm=[0, 2, 1])


def _packed(g: GraphWriter, x: str, bits: int, count: int, output: str) -> None:
    """Codes as bytes, the lowest bits first. count: of the codes, if the last byte may need to be filled with zeros"""
    x = g("Reshape", x, g.constant(I64, -1))
    if bits == 4:
        x = g("Pad", x, g.constant(I64, 0, 1)) if count % 2 else x
        x = g("Reshape", x, g.constant(I64, -1, 2))
        low, high = (g("Slice", x, g.constant(I64, n), g.constant(I64, n + 1), g.constant(I64, 1)) for n in range(2))
        x = g("Add", low, g("Mul", high, g.constant(F32, 16)))
        x = g("Reshape", x, g.constant(I64, -1))
    g("Cast", x, output=output, to=U8.code)


def _coded(g: GraphWriter, values: str, coding: Coding, dtype: DType) -> tuple[str, str, str]:
    """Codes, scales and zero points of rows that are a block each, as float32. dtype: of the stored scales"""
    bits = coding.bits
    nothing, one = g.constant(F32, 0), g.constant(F32, 1)
    last = g.constant(I64, 1)
    largest = g("ReduceMax", g("Abs", values), last)
    largest = g("Where", g("Equal", largest, nothing), one, largest)
    values = g("Div", values, largest)  # or squares of errors overflow
    low = g("Min", g("ReduceMin", values, last), nothing)  # a zero point needs 0 in the range
    high = g("Max", g("ReduceMax", values, last), nothing)
    size = g("Mul", largest, g.constant(F32, abs(coding.factor))) if coding.factor != 1 else largest
    at = partial(_at, g, values, bits, size if dtype is F16 else "")
    code, scale, zero = at(low, high)
    least = _error(g, values, code, scale, zero) if len(_SHRINK[bits]) > 1 else ""
    for factor in _SHRINK[bits][1:]:
        by = g.constant(F32, factor)
        code, other, point = at(g("Mul", by, low), g("Mul", by, high))
        error = _error(g, values, code, other, point)
        better = g("Less", error, least)
        scale, zero, least = (
            g("Where", better, its, mine) for its, mine in ((other, scale), (point, zero), (error, least))
        )
    code = _code(g, values, bits, scale, zero)
    scale = g("Mul", scale, size)
    return code, g("Neg", scale) if coding.factor < 0 else scale, zero


def _at(g: GraphWriter, values: str, bits: int, size: str, low: str, high: str) -> tuple[str, str, str]:
    """Codes, scales and zero points of blocks with these ranges. size: what stored scales are multiplied by, if they
    are half floats"""
    most = g.constant(F32, (1 << bits) - 1)
    scale = g("Div", g("Sub", high, low), most)
    scale = g("Where", g("Equal", scale, g.constant(F32, 0)), g.constant(F32, 1), scale)
    if size:
        scale = _as_half(g, scale, size)
    zero = _clipped(g, g("Round", g("Div", g("Neg", low), scale)), bits)
    return _code(g, values, bits, scale, zero), scale, zero


def _as_half(g: GraphWriter, scale: str, size: str) -> str:
    """The scale whose product with `size` is a half float, so that codes are those of the stored scale. Where half
    floats are 2**-24 apart, it is rounded up: a smaller one would cut off the outermost weights."""
    stored = g("Add", g("Mul", scale, size), g.constant(F32, 2**-25))
    return g("Div", g("Cast", g("Cast", stored, to=F16.code), to=F32.code), size)


def _code(g: GraphWriter, values: str, bits: int, scale: str, zero: str) -> str:
    return _clipped(g, g("Add", g("Round", g("Div", values, scale)), zero), bits)


def _clipped(g: GraphWriter, x: str, bits: int) -> str:
    return g("Min", g("Max", x, g.constant(F32, 0)), g.constant(F32, (1 << bits) - 1))


def _error(g: GraphWriter, values: str, code: str, scale: str, zero: str) -> str:
    """The squared error of each block, (blocks, 1)"""
    off = g("Sub", g("Mul", g("Sub", code, zero), scale), values)
    return g("ReduceSum", g("Mul", off, off), g.constant(I64, 1))


@cache
def range_model(dtype: DType) -> bytes:
    """A model of the largest magnitudes of the middle axis of three, "largest"; NaN if a number is NaN."""
    g = GraphWriter()
    g("ReduceMax", g("Abs", g("Cast", "w", to=F32.code)), g.constant(I64, 0, 2), keepdims=0, output="largest")
    return g.model([value_info("w", dtype, ("a", "c", "b"))], [value_info("largest", F32, ("c",))])


@cache
def comparison(dtype: DType) -> bytes:
    """A model of the squared sums of the difference of two vectors, "error", and of the first, "size"."""
    g = GraphWriter()
    a, b = (g("Cast", name, to=F64.code) for name in ("expected", "found"))
    g("ReduceSumSquare", g("Sub", b, a), keepdims=0, output="error")
    g("ReduceSumSquare", a, keepdims=0, output="size")
    inputs = [value_info(name, dtype, ("n",)) for name in ("expected", "found")]
    return g.model(inputs, [value_info(name, F64, ()) for name in ("error", "size")])
