"""The routine "matmul": C[b, m, n] (+)= A[b, m, k] * B[b, k, n] in float32.

Rows of A are contiguous along k. layouts.py says how B may lie in memory. Dense matrices are packed block by block into
scratch if there are enough rows to pay for it, and read in place otherwise (gemv_unpacked.py). NaN and infinities
propagate; K = 0 gives zeros (and the epilogue).

With Arithmetic.INT16 or INT8_ROWS (not with quantised weights) an element of A or of a panel is two int16 or four bytes
along k, and C is int32: addresses stay the same, and k is a half or a quarter.

Work units: batch * ceil(m / mc) * ceil(n / nc) blocks of C (`units`); row blocks vary fastest.
"""

from __future__ import annotations

from typing import NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, once
from .arguments import KERNEL, ArgumentBlock, element, minimum
from .arithmetic import Arithmetic
from .few_rows import FEW_ROWS, few_bytes
from .gemv_integers import integer_rows, largest_row, quantise_rows
from .layouts import Dense, Layout, Packed
from .pack_panels import pack_cols, pack_rows
from .panel_order import GEMV_ROWS, StepWords
from .register_tile import (
    BLOCK,
    NO_EPILOGUE,
    PANEL,
    Epilogue,
    block_of_unit,
    call_block,
    call_units,
    panels_block,
    set_flags,
)
from .right_operand import Block, right_operand
from .weight_codes import GROUP, WeightCodes

PACK_COLUMNS = 64


class Buffers(NamedTuple):
    a: Tensor
    b: Tensor
    c: Tensor
    bias: Tensor  # read by epilogues that add a bias
    scratch: Tensor  # read unless `own` is 0


class Params(NamedTuple):
    """Strides are in elements. Batches come in groups of `inner`."""

    m: AnyDim
    n: AnyDim
    k: AnyDim
    batch: AnyDim
    lda: AnyDim  # between rows of A
    ldb: AnyDim  # between rows of B as stored; unused for panels; the k of one step for quantised weights
    ldc: AnyDim  # between rows of C
    stride_a: AnyDim  # between batches of a group; 0 broadcasts
    stride_b: AnyDim
    stride_c: AnyDim
    mc: AnyDim  # block sizes, from `blocks`; nc is a multiple of 8, kc of 4 for quantised weights
    nc: AnyDim
    kc: AnyDim
    inner: AnyDim = 1
    outer_a: AnyDim = 0  # between groups
    outer_b: AnyDim = 0
    outer_c: AnyDim = 0
    offset_a: AnyDim = 0  # where A and B start in their buffers; 0 where rows of A are quantised
    offset_b: AnyDim = 0
    own: AnyDim = 0  # bytes of scratch for each thread, from `scratch_bytes`


class PackBuffers(NamedTuple):
    source: Tensor
    packed: Tensor


class PackParams(NamedTuple):
    """Strides are in elements. Batches come in groups of `inner`."""

    n: AnyDim
    k: AnyDim
    batch: AnyDim
    ld: AnyDim  # between rows of the source as stored
    stride_source: AnyDim  # between batches of a group
    stride_packed: AnyDim  # between packed matrices, usually `packed_floats(n, k)`
    inner: AnyDim = 1
    outer_source: AnyDim = 0  # between groups
    offset: AnyDim = 0  # where the first matrix starts in the source


ARGUMENTS = ArgumentBlock(Buffers._fields, Params._fields, "c")
# steps: scales and zero points of quantised weights (weight_codes.py)
QUANTISED_ARGUMENTS = ArgumentBlock((*Buffers._fields, "steps"), Params._fields, "c")
PACK_ARGUMENTS = ArgumentBlock(PackBuffers._fields, PackParams._fields)


def arguments_of(layout: Layout) -> ArgumentBlock:
    return QUANTISED_ARGUMENTS if isinstance(layout, WeightCodes) else ARGUMENTS


def blocks(m: AnyDim, n: AnyDim, k: AnyDim, threads: int = 1, few: int = 8) -> tuple[AnyDim, AnyDim, AnyDim]:
    """(mc, nc, kc): the panel block (kc * nc floats) stays in the second-level cache, a tile's rows of A in the first.
    few: rows up to which blocks have as many columns as a thread.

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
        nc = sh.clamp(sh.ceildiv(sh.ceildiv(n, columns), PANEL) * PANEL, PANEL, 256)
        mc = row_block(m, sh.ceildiv(n, nc), threads)
    else:
        columns = max(sh.ceildiv(n, 256), min(threads, n // 64), 1) if isinstance(n, int) else 1
        nc = sh.clamp(sh.ceildiv(sh.ceildiv(n, columns), PANEL) * PANEL, PANEL, 256)
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


def scratch_bytes(layout: Layout, p: Params) -> AnyDim:
    """Return the scratch bytes of a thread; thread t uses scratch + t * scratch_bytes."""
    panels = sh.ceildiv(p.nc, PANEL) * PANEL * (sh.ceildiv(p.kc, GROUP) * GROUP) * 4
    if isinstance(layout, Dense):
        return panels
    few = few_bytes(p.m, p.k)
    if isinstance(layout, WeightCodes) and layout.digits:
        few = sh.maximum(few, GEMV_ROWS * largest_row(p.k, p.ldb, layout.digits))
    return sh.select(sh.compare("le", p.m, FEW_ROWS), few, 0 if isinstance(layout, Packed) else panels)


def packed_floats(n: AnyDim, k: AnyDim) -> AnyDim:
    """Size of one packed matrix."""
    return sh.ceildiv(n, PANEL) * PANEL * k


def _addresses(f: Function, w: dict[str, int], p: dict[str, int]) -> None:
    f.emit(p["batch"], w["inner"], "i32.div_u").set(p["high"])
    f.emit(p["batch"], w["inner"], "i32.rem_u").set(p["low"])
    element(f, w["a"], (p["high"], w["outer_a"]), (p["low"], w["stride_a"]), (p["row"], w["lda"])).set(p["a"])
    element(f, w["c"], (p["high"], w["outer_c"]), (p["low"], w["stride_c"]), (p["row"], w["ldc"]))
    f.emit(p["col"]).i32(2).emit("i32.shl", "i32.add").set(p["c"])
    for name, source in (("lda", "lda"), ("ldc", "ldc")):
        f.emit(w[source]).i32(2).emit("i32.shl").set(p[name])


@once
def _unit(module: Module, layout: Layout, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    """(args, unit, scratch, reuse): one block of C; reuse: the scratch already holds its panels."""
    panels, arguments = panels_block(module, arithmetic, epilogue.tile()), arguments_of(layout)
    words = StepWords(len(Buffers._fields), arguments.word("ldb", epilogue.extra))
    b = right_operand(module, layout, arithmetic, epilogue.tile(), words)
    f = module.function("matmul_unit", ["i32"] * 4, export=False)
    args, unit, scratch, reuse = f.params
    w = arguments.load(f, epilogue.extra, Buffers._fields)
    p = {name: f.local("i32") for name in (*BLOCK, "high", "low")}
    k0 = f.local("i32")
    at = Block(f, w, p, k0, scratch, reuse)
    f.emit(args).set(p["args"]).emit(w["bias"]).set(p["bias"])
    for name, size in (("a", 4), ("b", layout.size if isinstance(layout, Dense) else 4)):
        f.emit(w[name], w["offset_" + name]).i32(size).emit("i32.mul", "i32.add").set(w[name])
    with block_of_unit(f, p, unit, (w["m"], w["mc"]), (w["n"], w["nc"])) as batch:
        f.emit(batch).set(p["batch"])
    _addresses(f, w, p)
    with f.block() as done:
        if b.gemv is not None:
            f.emit(w["m"]).i32(b.few).emit("i32.le_s")
            with f.if_():  # all of k at once
                b.address(at).set(p["b"]).emit(w["k"]).set(p["k"])
                b.stride(at).set(p["ldb"])
                set_flags(f, p["flags"], k0, p["k"], w["k"])
                b.multiply_few(at)
                f.br(done)
        if b.by_panel is not None:
            f.emit(w["m"]).i32(FEW_ROWS).emit("i32.le_s")
            with f.if_():
                b.multiply_by_panel(at)
                f.br(done)
        with f.loop() as again:
            f.emit(w["k"], k0, "i32.sub").set(p["k"])
            minimum(f, p["k"], p["k"], w["kc"])
            set_flags(f, p["flags"], k0, p["k"], w["k"])
            b.panels(at)
            call_block(f, panels, p)
            f.emit(p["k"]).i32(2).emit("i32.shl", p["a"], "i32.add").set(p["a"])
            f.emit(k0, p["k"], "i32.add").tee(k0).emit(w["k"], "i32.lt_u").br_if(again)
    epilogue.finish(f, p)
    return f


def _quantise(f: Function, w: dict[str, int], layout: WeightCodes) -> None:
    """If rows are few, quantise them once before the units of this call."""
    _, begin, end, _ = f.params
    with f.scratch("i32", 2) as (a, step):
        f.emit(0).mem("i32.load", 4 * ARGUMENTS.word("a")).set(a).emit(w["lda"]).i32(2).emit("i32.shl").set(step)
        f.emit(begin, end, "i32.lt_s", w["m"]).i32(integer_rows(f.module, layout)).emit("i32.le_s", "i32.and")
        with f.if_():
            f.emit(a, step, w["m"], w["k"], w["ldb"], w["scratch"]).call(quantise_rows(f.module, layout.digits))


def matmul(
    module: Module, name: str, layout: Layout, *, arithmetic: Arithmetic, epilogue: Epilogue = NO_EPILOGUE
) -> Function:
    """Emit the kernel (args, begin, end, tid), whose argument block is `arguments_of(layout)`. layout: that of B"""
    unit = _unit(module, layout, arithmetic, epilogue)
    f = module.function(name, KERNEL)
    w = arguments_of(layout).load(f, epilogue.extra, ("scratch",))
    f.emit(w["own"], f.params[-1], "i32.mul", w["scratch"], "i32.add").set(w["scratch"])

    def start() -> None:
        if isinstance(layout, WeightCodes) and layout.digits:
            _quantise(f, w, layout)

    call_units(f, unit, w["scratch"], (w["m"], w["mc"]), (w["k"], w["kc"], "i32.le_u", "i32.and"), start)
    return f


def pack_b(module: Module, name: str, transposed: bool) -> Function:
    """Emit a kernel that packs a dense float32 B into panels. Work units: batch * ceil(n / 64)."""
    packer = (pack_cols if transposed else pack_rows)(module, False)
    f = module.function(name, KERNEL)
    _, begin, end, _ = f.params
    w = PACK_ARGUMENTS.load(f)
    count, col, cols, step, batch, high, low = f.locals("i32", 7)
    f.emit(w["n"]).i32(PACK_COLUMNS - 1).emit("i32.add").i32(PACK_COLUMNS).emit("i32.div_u").set(count)
    f.emit(w["k"]).i32(5).emit("i32.shl").set(step)
    one = f.local("i32")
    f.i32(1).set(one)
    element(f, w["source"], (w["offset"], one)).set(w["source"])
    with f.until(begin, end):
        f.emit(begin, count, "i32.div_u").tee(batch).emit(w["inner"], "i32.div_u").set(high)
        f.emit(batch, w["inner"], "i32.rem_u").set(low)
        f.emit(begin, count, "i32.rem_u").i32(PACK_COLUMNS).emit("i32.mul").set(col)
        f.emit(w["n"], col, "i32.sub").set(cols)
        f.emit(cols).i32(PACK_COLUMNS).emit(cols).i32(PACK_COLUMNS).emit("i32.lt_u", "select").set(cols)
        at = (col, w["ld"] if transposed else one)
        element(f, w["source"], (high, w["outer_source"]), (low, w["stride_source"]), at)
        f.emit(w["ld"]).i32(2).emit("i32.shl", w["k"], cols)
        element(f, w["packed"], (batch, w["stride_packed"]), (col, w["k"])).emit(step).call(packer)
    return f


def pack_units(n: AnyDim, batch: AnyDim = 1) -> AnyDim:
    return batch * sh.ceildiv(n, PACK_COLUMNS)
