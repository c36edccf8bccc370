"""The routine "matmul": C[b, m, n] (+)= A[b, m, k] * B[b, k, n] in float32.

Rows of A are contiguous along k; or, `left`, its columns are contiguous along m, and blocks of it are transposed into
scratch. layouts.py says how B may lie in memory. Dense matrices are packed block by block into scratch if there are
enough rows to pay for it, and read in place otherwise (gemv_unpacked.py). NaN and infinities propagate; K = 0 gives
zeros (and the epilogue).

With Arithmetic.INT16 or INT8_ROWS (not with quantised weights) an element of A or of a panel is two int16 or four bytes
along k, and C is int32: addresses stay the same, and k is a half or a quarter.

Work units: batch * ceil(m / mc) * ceil(n / nc) blocks of C (`units`); row blocks vary fastest.
"""

from __future__ import annotations

from typing import Generic, NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, once
from ..printer.values import I32, POINTERS, Ptr, minimum
from .arguments import KERNEL, ArgumentBlock, Word
from .arithmetic import Arithmetic
from .few_rows import copied_row, few_bytes
from .gemv_integers import integer_rows, largest_row, quantise_rows
from .layouts import Dense, Layout, Packed, TransposedCodes
from .pack_panels import pack_cols, pack_rows, transpose_rows
from .panel_order import FEW_ROWS, StepWords
from .register_tile import (
    NO_EPILOGUE,
    PANEL,
    Block,
    Epilogue,
    Unit,
    block_of_unit,
    call_units,
    flags_of,
    panels_block,
)
from .right_operand import Matrix, PackedOperand, right_operand, rows_in_place
from .weight_codes import GROUP, WeightCodes

PACK_COLUMNS = 64
LEFT_K = 192  # of a block of a transposed A
LEFT_ROW = 4 * LEFT_K + 64  # bytes between rows of its copy: an odd number of lines, which use all sets of a cache


class Buffers(NamedTuple, Generic[Word]):
    a: Word
    b: Word
    c: Word
    bias: Word  # read by epilogues that add a bias
    scratch: Word  # read unless `own` is 0


class Params(NamedTuple, Generic[Word]):
    """Strides are in elements. Batches come in groups of `inner`."""

    m: Word
    n: Word
    k: Word
    batch: Word
    lda: Word  # between rows of A, or of its transpose
    ldb: Word  # between rows of B as stored; unused for panels; the k of one step for quantised weights
    ldc: Word  # between rows of C
    stride_a: Word  # between batches of a group; 0 broadcasts
    stride_b: Word
    stride_c: Word
    mc: Word  # block sizes, from `blocks`; nc is a multiple of 8, kc of 4 for quantised weights
    nc: Word
    kc: Word
    inner: Word = 1  # type: ignore[assignment]
    outer_a: Word = 0  # type: ignore[assignment]  # between groups
    outer_b: Word = 0  # type: ignore[assignment]
    outer_c: Word = 0  # type: ignore[assignment]
    offset_a: Word = 0  # type: ignore[assignment]  # where A and B start in their buffers; 0 where rows of A are quantised
    offset_b: Word = 0  # type: ignore[assignment]
    own: Word = 0  # type: ignore[assignment]  # bytes of scratch for each thread, from `scratch_bytes`


class PackBuffers(NamedTuple, Generic[Word]):
    source: Word
    packed: Word


class PackParams(NamedTuple, Generic[Word]):
    """Strides are in elements. Batches come in groups of `inner`."""

    n: Word
    k: Word
    batch: Word
    ld: Word  # between rows of the source as stored
    stride_source: Word  # between batches of a group
    stride_packed: Word  # between packed matrices, usually `packed_floats(n, k)`
    inner: Word = 1  # type: ignore[assignment]
    outer_source: Word = 0  # type: ignore[assignment]  # between groups
    offset: Word = 0  # type: ignore[assignment]  # where the first matrix starts in the source


ARGUMENTS = ArgumentBlock(Buffers._fields, Params._fields, "c")
# steps: scales and zero points of quantised weights (weight_codes.py)
QUANTISED_ARGUMENTS = ArgumentBlock((*Buffers._fields, "steps"), Params._fields, "c")
PACK_ARGUMENTS = ArgumentBlock(PackBuffers._fields, PackParams._fields)


def arguments_of(layout: Layout) -> ArgumentBlock:
    return QUANTISED_ARGUMENTS if isinstance(layout, (WeightCodes, TransposedCodes)) else ARGUMENTS


def blocks(m: AnyDim, n: AnyDim, k: AnyDim, threads: int = 1, few: int = 8) -> tuple[AnyDim, AnyDim, AnyDim]:
    """(mc, nc, kc): the panel block (kc * nc floats) stays in the second-level cache, a tile's rows of A in the first.
    few: rows up to which blocks have as many columns as a thread. For machine code (native_imports.py) scratch has room
    for 32 columns.

    Any positive values give correct results. Chromium, 512^3: from (96, 64, 256) to (512, 256, 512) all within 5 %.
    With several threads, each gets at least two blocks, of nearly equal size. If m or n is a symbol, a simpler rule
    applies, because the expression is printed, sent and evaluated for each product (MiniLM: 600 ms instead of 90 in
    Pyodide).
    """
    nc: AnyDim = 256
    kc = sh.clamp(k, 1, 384)
    wide = sh.ceildiv(sh.clamp(sh.ceildiv(n, threads), 64, 2048), PANEL) * PANEL
    if threads == 1:
        mc = sh.clamp(m, 1, 192)
    elif isinstance(m, int) and isinstance(n, int):
        columns = min(sh.ceildiv(2 * threads, max(sh.ceildiv(m, 192), 1)), max(n // 64, 1))
        nc = sh.clamp(sh.ceildiv(sh.ceildiv(n, columns), PANEL) * PANEL, 4 * PANEL, 256)
        mc = row_block(m, sh.ceildiv(n, nc), threads)
    else:
        columns = max(sh.ceildiv(n, 256), min(threads, n // 64), 1) if isinstance(n, int) else 1
        nc = sh.clamp(sh.ceildiv(sh.ceildiv(n, columns), PANEL) * PANEL, 4 * PANEL, 256)
        mc = sh.clamp(sh.ceildiv(sh.ceildiv(m, threads), 12) * 12, 24, 192)
    return mc, sh.select(sh.compare("le", m, few), wide, nc), kc


def row_block(m: AnyDim, columns: AnyDim, threads: int) -> AnyDim:
    """Return mc, given the number of column blocks: a multiple of 12 rows, which every tile height divides, such that
    each thread gets the same number of blocks."""
    rows = sh.maximum(sh.ceildiv(m, 192), sh.ceildiv(2 * threads, sh.maximum(columns, 1)))
    rows = sh.ceildiv(rows, threads) * threads
    return sh.clamp(sh.ceildiv(sh.ceildiv(m, rows), 12) * 12, 24, 192)


def units(m: AnyDim, n: AnyDim, batch: AnyDim, mc: AnyDim, nc: AnyDim) -> AnyDim:
    return batch * sh.ceildiv(m, mc) * sh.ceildiv(n, nc)


def scratch_bytes(layout: Layout, p: Params[AnyDim], in_place: int = FEW_ROWS) -> AnyDim:
    """Return the scratch bytes of a thread; thread t uses scratch + t * scratch_bytes. in_place: `rows_in_place`"""
    panels = sh.ceildiv(p.nc, PANEL) * PANEL * (sh.ceildiv(p.kc, GROUP) * GROUP) * 4
    if isinstance(layout, (Dense, TransposedCodes)):
        return panels
    row = copied_row(p.k)
    if isinstance(layout, WeightCodes) and layout.digits:
        row = sh.maximum(row, largest_row(p.k, p.ldb, layout.digits))
    few = few_bytes(p.m, row)
    return sh.select(sh.compare("le", p.m, in_place), few, 0 if isinstance(layout, Packed) else panels)


def left_blocks(mc: AnyDim, nc: AnyDim, k: AnyDim) -> tuple[AnyDim, AnyDim, AnyDim]:
    """Return (mc, nc, kc) for a transposed A: more columns, for each block of which it is transposed again, of fewer
    k."""
    return mc, 512 if nc == 256 else nc, sh.clamp(k, 1, LEFT_K)


def left_bytes(mc: AnyDim) -> AnyDim:
    """Return the scratch bytes of a thread for a block of a transposed A."""
    return (mc + 3) * LEFT_ROW


def packed_floats(n: AnyDim, k: AnyDim) -> AnyDim:
    """Size of one packed matrix."""
    return sh.ceildiv(n, PANEL) * PANEL * k


def _addresses(f: Function, at: Buffers[Ptr], w: Params[I32], p: Block, high: I32, low: I32, row: I32) -> None:
    """row: elements of A from one row to the next"""
    f.set(high, p.batch // w.inner).set(low, p.batch % w.inner)
    f.set(p.a, at.a + high * w.outer_a * 4 + low * w.stride_a * 4 + p.row * row * 4)
    f.set(p.c, at.c + high * w.outer_c * 4 + low * w.stride_c * 4 + p.row * w.ldc * 4 + (p.col << 2))
    f.set(p.lda, w.lda << 2).set(p.ldc, w.ldc << 2)


@once
def _unit(module: Module, layout: Layout, arithmetic: Arithmetic, epilogue: Epilogue, left: bool) -> Function:
    """One block of C."""
    panels, arguments = panels_block(module, arithmetic, epilogue.tile()), arguments_of(layout)
    words = StepWords(len(Buffers._fields), *[arguments.word(name, epilogue.extra) for name in ("ldb", "n")])
    if isinstance(layout, TransposedCodes):
        from .pack_transposed import TransposedOperand  # sessions that only run models do not load it

        b: PackedOperand = TransposedOperand(module, layout.codes, arithmetic, words)
    else:
        b = right_operand(module, layout, arithmetic, epilogue.tile(), words)
    f, (args, unit, scratch, reuse) = module.inner("matmul_unit", Unit)
    buffers = Buffers(*arguments.pointers(f, *Buffers._fields))
    w = Params(*arguments.integers(f, epilogue.extra))
    p = f.fields(Block)
    (high, low, k0, row), (source, copy) = f.integers(4), f.pointers(2)
    if left:
        f.set(copy, scratch).set(scratch, scratch + (w.mc + 3) * LEFT_ROW)
    at = Matrix(f, p, buffers.b, w.k, w.ldb, (high * w.outer_b, low * w.stride_b), k0, scratch, reuse)
    f.set(p.args, args).set(p.bias, buffers.bias)
    f.set(buffers.a, buffers.a + w.offset_a * 4)
    f.set(buffers.b, buffers.b + w.offset_b * (layout.size if isinstance(layout, Dense) else 4))
    with block_of_unit(f, p, unit, (w.m, w.mc), (w.n, w.nc)) as batch:
        f.set(p.batch, batch)
    f.set(row, 1) if left else f.set(row, w.lda)
    _addresses(f, buffers, w, p, high, low, row)
    if left:
        f.set(source, p.a).set(p.a, copy).set(row, p.lda).set(p.lda, LEFT_ROW)
    with f.block() as done:
        if b.gemv is not None and not left:
            with f.if_(w.m.le_s(b.few)):  # all of k at once
                f.set(p.b, b.address(at)).set(p.k, w.k).set(p.ldb, b.stride(at))
                f.set(p.flags, flags_of(k0, p.k, w.k))
                b.multiply_few(at)
                f.br(done)
        if b.by_panel is not None and not left:
            with f.if_(w.m.le_s(rows_in_place(module, layout))):
                b.multiply_by_panel(at)
                f.br(done)
        with f.loop() as again:
            f.set(p.k, w.k - k0).set(p.k, minimum(p.k, w.kc))
            f.set(p.flags, flags_of(k0, p.k, w.k))
            if left:
                f.call(transpose_rows, source, row, p.k, p.rows, copy, p.lda).set(source, source + p.k * row)
            b.multiply(at, panels, epilogue.tile())
            if not left:
                f.set(p.a, (p.k << 2) + p.a)
            f.br_if(again, k0.tee(k0 + p.k).lt_u(w.k))
    epilogue.finish(f, p)
    return f


def _quantise(f: Function, w: Params[I32], scratch: Ptr, layout: WeightCodes) -> None:
    """If rows are few, quantise them once before the units of this call."""
    args, begin, end, _ = f.params
    with f.scratch("i32", 2) as (a, step):
        f.set(a, POINTERS[args].i32(4 * ARGUMENTS.word("a"))).set(step, w.lda << 2)
        with f.if_(begin.lt_s(end) & w.m.le_s(integer_rows(f.module, layout))):
            f.call(quantise_rows(f.module, layout.digits), a, step, w.m, w.k, w.ldb, scratch)


def matmul(
    module: Module, name: str, layout: Layout, *, arithmetic: Arithmetic, epilogue: Epilogue = NO_EPILOGUE,
    left: bool = False,
) -> Function:  # fmt: skip
    """Emit the kernel (args, begin, end, tid), whose argument block is `arguments_of(layout)`. layout: that of B; left:
    whether A is transposed"""
    unit = _unit(module, layout, arithmetic, epilogue, left)
    f = module.function(name, KERNEL)
    arguments = arguments_of(layout)
    (scratch,), w = arguments.pointers(f, "scratch"), Params(*arguments.integers(f, epilogue.extra))
    f.set(scratch, w.own * f.params[-1] + scratch)

    def start() -> None:
        if isinstance(layout, WeightCodes) and layout.digits:
            _quantise(f, w, scratch, layout)

    call_units(f, unit, scratch, (w.m, w.mc), w.k.le_u(w.kc), start)
    return f


def pack_b(module: Module, name: str, transposed: bool) -> Function:
    """Emit a kernel that packs a dense float32 B into panels. Work units: batch * ceil(n / 64)."""
    packer = (pack_cols if transposed else pack_rows)(module, False)
    f = module.function(name, KERNEL)
    _, begin, end, _ = f.params
    (source, packed), w = PACK_ARGUMENTS.pointers(f), PackParams(*PACK_ARGUMENTS.integers(f))
    count, col, cols, step, batch, high, low, one = f.integers(8)
    f.set(count, (w.n + (PACK_COLUMNS - 1)) // PACK_COLUMNS).set(step, w.k << 5)
    f.set(one, 1).set(source, source + w.offset * one * 4)
    with f.until(begin, end):
        f.set(high, batch.tee(begin // count) // w.inner).set(low, batch % w.inner)
        f.set(col, begin % count * PACK_COLUMNS).set(cols, w.n - col).set(cols, minimum(cols, PACK_COLUMNS))
        first = source + high * w.outer_source * 4 + low * w.stride_source * 4 + col * (w.ld if transposed else one) * 4
        f.call(packer, first, w.ld << 2, w.k, cols, packed + batch * w.stride_packed * 4 + col * w.k * 4, step)
    return f


def pack_units(n: AnyDim, batch: AnyDim = 1) -> AnyDim:
    return batch * sh.ceildiv(n, PACK_COLUMNS)
