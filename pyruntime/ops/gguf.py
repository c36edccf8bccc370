"""The operator by which graphs of GGUF files read their weights: it splits blocks into what MatMulNBits reads."""

from __future__ import annotations

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32, I32, U8
from pyruntime.ir.expr import Expr, cast, const, dim, minimum, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.packed_codes import packed_byte
from pyruntime.onnx.gguf_blocks import BLOCKS, Byte

DOMAIN = "pyruntime.gguf"
_TINY = 1e-30  # in place of a scale of 0: a float in which no code counts, and that a minimum can be divided by


@op("PairsApart", domain=DOMAIN)
def pairs_apart(t: Tracer, x: Tensor, *, heads: int) -> Tensor:
    """Rows in another order: rows 2·i and 2·i + 1 of each head become rows i and i + half of the head.

    Shapes: x (heads·size, *rest) -> the same"""
    rows, *rest = x.shape
    pairs = t.reshape(x, (heads, rows // (2 * heads), 2, *rest))
    return t.reshape(t.transpose(pairs, [0, 2, 1, *range(3, pairs.rank)]), x.shape)


@op("Unpack", domain=DOMAIN)
def unpack(t: Tracer, blocks: Tensor, *, kind: int, bits: int = 0) -> tuple[Tensor, ...]:
    """kind: GGUF's type. bits: width of the codes of the result, by default that of the type; a wider one has the same
    codes, and zero points.

    Shapes: blocks (N, B, bytes of a block) uint8 -> codes (N, G, group·bits/8) uint8, scales (N, G) float32, zero
    points (N, G) float32, none for a symmetric type of its own width; G groups a row. Memory is as in MatMulNBits"""
    block = BLOCKS[kind]
    width = bits or block.bits
    rows, count, _ = blocks.shape
    each = block.size // block.group
    groups = count * each

    def bytes_at(n: Expr, b: Expr) -> Byte:
        return lambda i: cast(blocks.at(n, b, i), I32)

    def code(n: Expr, g: Expr, place: Expr) -> Expr:
        place = minimum(place, dim(block.group - 1))  # `packed_byte` asks for neighbours, too
        return block.code(bytes_at(n, g / each), (g - g / each * each) * block.group + place)

    def byte(n: Expr, g: Expr, i: Expr) -> Expr:
        return packed_byte(lambda place: code(n, g, place), i, width)

    def scale(n: Expr, g: Expr) -> Expr:
        found = block.scale(bytes_at(n, g / each), g - g / each * each)
        return found if block.minimum is None else select(found == 0.0, _TINY, found)

    def zero(n: Expr, g: Expr) -> Expr:
        if block.minimum is None:
            return const(float(1 << (block.bits - 1)), F32)
        return block.minimum(bytes_at(n, g / each), g - g / each * each) / scale(n, g)

    codes = t.compute((rows, groups, block.group * width // 8), byte, U8)
    scales = t.compute((rows, groups), scale, F32)
    if block.minimum is None and width == block.bits:
        return codes, scales
    return codes, scales, t.compute((rows, groups), zero, F32)
