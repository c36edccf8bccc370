"""Products of rows and codes of 2 to 8 bits by WGSL's `dot4I8Packed`, if the model lets the rows be rounded to 8 bits
(`Reduce.round_block`).

Two kernels round the rows: each block of steps becomes signed bytes, four to a word, and a scale. A third one adds up
scale(a) · scale(w) · (Σ a·w - zero(w) · Σ a) over the blocks, in register tiles. Its inner sums are integers: a block
of 32 steps takes 8 dot products for each result instead of 32 multiplications.

In the loop form, `dot4` (args: two words) is the sum of the products of their signed bytes.
Spec: https://www.w3.org/TR/WGSL/#dot4I8Packed-builtin
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

from pyruntime.codegen.loop_ir import Lowered
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32, U32
from pyruntime.ir.expr import (
    Expr,
    binary,
    cast,
    const,
    dim,
    guard,
    index,
    maximum,
    minimum,
    rewrite,
    round_even,
    select,
    uses_index,
)
from pyruntime.ir.kernel import For, Map, Reduce, Set, Stmt, root
from pyruntime.ir.shape import AnyDim

from ..adapter import Adapter
from ..printer.loops import Array
from .packed_steps import shared_by_steps, word_of
from .register_tile import Side, Tile, contraction, pick_tile
from .vec4_access import WIDTH

FEW = 4  # rows: rounding them takes two more dispatches. Not measured on a GPU yet
LARGEST = 127
LONGEST = 1024  # steps of a block: float32 represents every sum of their products, 127 · 128 · 1024
_ONES = 0x01010101
_SIGNS = 0x80808080
# How four neighbouring codes of 2 or 4 bits become the bytes of a word: shifts and masks, one after the other
_SPREAD = {2: ((0, 0xFF), (12, 0x000F000F), (6, 0x03030303)), 4: ((0, 0xFFFF), (8, 0x00FF00FF), (4, 0x0F0F0F0F)), 8: ()}


class ByteProduct(NamedTuple):
    """rows: their number; scales (*rows, blocks) and words (*rows, blocks · block / 4): the kernels that round the
    rows; lowered, arrays: the loop form of the product, which reads them"""

    rows: AnyDim
    scales: Reduce
    words: Map
    lowered: Lowered
    arrays: list[Array]


class Weight(NamedTuple):
    """The factor (code - zero) · scale. code: as an element of packed codes; zero: None for 0"""

    code: Expr
    zero: Expr | None
    scale: Expr


def byte_product(kernel: Any, adapter: Adapter) -> ByteProduct | None:
    """The kernels that compute a sum in this way; None if it does not apply."""
    if not adapter.dot4 or not isinstance(kernel, Reduce) or not 0 < kernel.round_block <= LONGEST:
        return None
    if 0 in kernel.out.shape:
        return None
    rank, (steps,) = kernel.out.rank, kernel.extents
    if kernel.op != "sum" or kernel.expr.op != "mul" or not isinstance(steps, int):
        return None
    rows, weights = kernel.expr.args
    own, others = ([n for n in range(rank) if uses_index(e, n)] for e in (rows, weights))
    if {*own} & {*others} or not others:
        return None
    scales, words = _rounded(rows, [kernel.out.shape[n] for n in own], own, rank, steps, kernel.round_block)
    at = [index(n) for n in own]
    block, step = index(rank), index(rank + 1)
    place = block * kernel.round_block + step
    rounded = cast(words.out.at(*at, place / WIDTH), F32) * scales.out.at(*at, block)
    blocks = -(-steps // kernel.round_block)
    expr = rounded * _by_blocks(weights, rank, kernel.round_block)
    product = Reduce("sum", (blocks, kernel.round_block), expr, kernel.epilogue)
    product.outputs, product.node = kernel.outputs, kernel.node
    if len({root(t).uid for t in (*product.inputs, product.out)}) > adapter.storage_buffers:
        return None
    form = _tiled(product, adapter)
    return None if form is None else ByteProduct(sh.size(scales.out.shape[:-1]), scales, words, *form)


def _rounded(value: Expr, shape: list[AnyDim], axes: list[int], axis: int, steps: int, size: int) -> tuple[Reduce, Map]:
    """The kernels that make the scales and the words of a factor. axes: those of the product on which it depends;
    axis: that of the sum. A block of zeros has the scale 0; one with an infinity or a NaN has a scale that is not
    finite, so that its results are not either."""
    last = len(shape)
    blocks = -(-steps // size)

    def at(place: Expr) -> Expr:
        there = {n: index(m) for m, n in enumerate(axes)} | {axis: place}
        held = rewrite(value, lambda e: there.get(e.value) if e.op == "index" else None)
        return held if blocks * size == steps else guard(place < dim(steps), held, 0.0)

    scale = at(index(last) * size + index(last + 1))
    scales = Reduce("max", (size,), Expr("abs", (scale,), F32), Expr("arg", (), F32, 0) * (1 / LARGEST))
    scales.making((*shape, blocks), F32)

    def byte(n: int) -> Expr:
        place = index(last) * WIDTH + n
        scale = scales.out.at(*map(index, range(last)), place / size)
        near = maximum(minimum(round_even(at(place) / scale), float(LARGEST)), float(-LARGEST))
        whole = cast(cast(select(binary("gt", scale, 0.0), near, 0.0), I32), U32)
        return (whole & 255) << (8 * n)

    words = Map(reduce(lambda a, b: a | b, map(byte, range(WIDTH)))).making((*shape, blocks * size // WIDTH), U32)
    return scales, words


def _by_blocks(value: Expr, axis: int, size: int) -> Expr:
    """The factor with block · size + step in place of the index of this axis, and the next axis for the step."""
    block, step = index(axis), index(axis + 1)
    place = block * size + step

    def visit(e: Expr) -> Expr | None:
        if e.op == "index" and e.value == axis:
            return place
        if e.args and e.args[0] is place and e.args[1:] and e.args[1].op == "const":
            if e.op == "div" and e.args[1].value == size:
                return block
            if e.op == "and" and e.args[1].value == size - 1:
                return step
        return None

    return rewrite(value, visit)


def _tiled(product: Reduce, adapter: Adapter) -> tuple[Lowered, list[Array]] | None:
    found = contraction(product, pick_tile(product, adapter))
    if found is None:
        return None
    nest, sides = found
    weight, step = _weight(sides[1].factor), product.out.rank + 1
    if weight is None or nest.inner[-1].axis != step:
        return None
    if any(uses_index(e, step) for e in (weight.scale, weight.zero) if e is not None):
        return None
    tile = ByteTile(nest, product, sides, weight, adapter.software)
    return tile.lowered() if tile.reads_codes else None


def _weight(factor: Expr) -> Weight | None:
    if factor.op != "mul":
        return None
    value, scale = factor.args
    code, zero = value.args if value.op == "sub" else (value, None)
    while code.op == "cast":
        code = code.args[0]
    return Weight(code, zero, scale)


class ByteTile(Tile):
    """The register tile of such a product. reads_codes: whether four steps read their codes from a word"""

    def __init__(self, nest: Any, kernel: Reduce, sides: list[Side], weight: Weight, short: bool) -> None:
        super().__init__(nest, kernel, sides, short)
        self.weight = weight
        codes = shared_by_steps(weight.code, nest.inner[-1].axis)
        self.codes = codes.codes if codes is not None else []
        self.reads_codes = len(self.codes) == 1 and self.codes[0][0].key() == weight.code.key()

    def _loops(self, lanes: list[list[Any]], sums: dict[tuple[int, int], Expr]) -> list[Stmt]:
        nest, work = self.nest, self.work
        loops = nest.loops()
        body: list[Stmt] = []
        zero = const(0, I32)
        dots = {key: work.let(zero, body, mutable=True) for key in sums}
        own = [work.let(zero, body, mutable=True) for _ in lanes[0]]
        steps = nest.inner[-1]
        body.append(For(loops[-1].value, work.number(sh.ceildiv(steps.extent, WIDTH)), self._step(lanes, dots, own)))
        body += self._block(lanes, sums, dots, own)
        for v, g in zip(reversed(loops[:-1]), reversed(nest.inner[:-1]), strict=True):
            body = [For(v.value, work.number(g.extent), body)]
        return body

    def _step(self, lanes: list[list[Any]], dots: dict[tuple[int, int], Expr], own: list[Expr]) -> list[Stmt]:
        """Four steps of the integer sums."""
        body: list[Stmt] = []
        axis = self.nest.inner[-1].axis
        before = self.nest.index_of[axis]
        self.nest.index_of[axis] = [self.work.let(binary("mul", before[0], const(WIDTH, I32)), body)]
        rounded = self.sides[0].factor.args[0].args[0]
        rows = [self._loaded(0, at, rounded, body) for at in lanes[0]]
        words = [self._bytes(at, body) for at in lanes[1]]
        for total, row in zip(own, rows, strict=True):
            body.append(Set(total.value, binary("add", total, dot4(row, const(_ONES, U32)))))
        for (i, j), total in dots.items():
            body.append(Set(total.value, binary("add", total, dot4(rows[i], words[j]))))
        return body

    def _bytes(self, at: Expr | None, body: list[Stmt]) -> Expr:
        """The word of signed bytes of four codes."""
        _, byte, bits = self.codes[0]
        self._move([at], [self.sides[1]])
        word = self.work.let(word_of(self.nest.load(byte)), body)
        for shift, mask in _SPREAD[bits]:
            spread = word | word << shift if shift else word
            word = self.work.let(spread & const(mask, U32), body)
        return self.work.let(word ^ const(_SIGNS, U32), body) if bits == 8 else word

    def _block(
        self, lanes: list[list[Any]], sums: dict[tuple[int, int], Expr], dots: dict[tuple[int, int], Expr],
        own: list[Expr],
    ) -> list[Stmt]:  # fmt: skip
        """Add the integer sums of a block to the results."""
        body: list[Stmt] = []
        work, weight = self.work, self.weight
        scale = self.sides[0].factor.args[1]
        steps = [self._loaded(0, at, scale, body) for at in lanes[0]]
        totals = [work.let(cast(t, F32), body) for t in own]
        scales = [self._loaded(1, at, weight.scale, body) for at in lanes[1]]
        shift = 128.0 if self.codes[0][2] == 8 else 0.0
        zero = (const(0.0) if weight.zero is None else weight.zero) - shift
        zeros = [self._loaded(1, at, zero, body) for at in lanes[1]]
        for (i, j), total in sums.items():
            inner = cast(dots[i, j], F32) - zeros[j] * totals[i]
            body.append(Set(total.value, total + steps[i] * scales[j] * inner))
        return body

    def _loaded(self, side: int, at: Expr | None, e: Expr, body: list[Stmt]) -> Expr:
        self._move([at], [self.sides[side]])
        return self.work.let(self.nest.load(e), body)


def dot4(a: Expr, b: Expr) -> Expr:
    return Expr("dot4", (a, b), I32)
