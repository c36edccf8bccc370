"""The routine "matmul": C[b, m, n] (+)= A[b, m, k] * B[b, k, n] in f32.

A is rows with k contiguous. B is one of
    "panels"  packed, [ceil(N/8)][K][8] (by `pack_b`, once, for weights)
    "rows"    row-major, n contiguous
    "cols"    transposed, [N][K] with k contiguous
    "rows16", "cols16"  the same of float16, whose strides count those (float_loads.py)
    "nbits4", "nbits8"  codes and, as first extra buffer, steps (weight_codes.py); ldb is the k of one step;
              kc a multiple of 4. "nbits4z" with zero points; "nbits4q", "nbits4qq": few rows of A
              become integers (gemv_integers.py), oa is 0
    "nbits16" float16, as codes without steps
"rows" and "cols" are packed block by block into scratch when there are enough rows to pay for it, and otherwise read as
they lie (gemv_unpacked.py). NaN and infinities propagate; K = 0 gives zeros (and the epilogue).

Argument block (i32 words; strides in floats): the buffers A B C bias scratch, then `extra` buffers for the epilogue,
then the parameters PARAMS, then whatever the epilogue wants:
    m n k batch     extents
    lda ldb ldc     between rows of A, of B as stored ("panels": unused), of C
    sa sb sc        between batches; 0 broadcasts
    mc nc kc        block sizes, from `blocks` (nc a multiple of 8)
    inner           batches come in groups of this many; within a group sa sb sc are the strides
    ta tb tc        between groups
    oa ob           where A and B start in their buffers
With Arithmetic.INT16 or INT8_ROWS (not with few bits) an element of A is two int16 or four bytes along k, one of a
panel as well, and C is int32: the same addresses, a half or a quarter of the k.
bias is read only by epilogues that have one; scratch only for "rows" and "cols", `scratch_bytes` for each thread.

Work units: batch * ceil(m / mc) * ceil(n / nc) blocks of C (`units`); row blocks vary fastest.
"""

from __future__ import annotations

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module
from .arguments import KERNEL, ceil_div, element, load_words, minimum
from .arithmetic import Arithmetic
from .gemv_integers import quantise_rows
from .pack_panels import pack_cols, pack_rows
from .panel_order import FEW
from .register_tile import BLOCK, FIRST, LAST, PANEL, Epilogue, call_block, panels_block
from .right_operand import HALVES, Block, right_operand
from .weight_codes import KINDS

BUFFERS = ("a", "b", "c", "bias", "scratch")
PARAMS = ("m", "n", "k", "batch", "lda", "ldb", "ldc", "sa", "sb", "sc", "mc", "nc", "kc", "inner", "ta", "tb", "tc",
          "oa", "ob")  # fmt: skip
PACK_BUFFERS = ("source", "packed")
PACK_PARAMS = ("n", "k", "batch", "ld", "s_source", "s_packed", "inner", "t_source", "offset")
PACK_COLUMNS = 64


def blocks(m: AnyDim, n: AnyDim, k: AnyDim, threads: int = 1) -> tuple[AnyDim, AnyDim, AnyDim]:
    """(mc, nc, kc): the panel block (kc * nc floats) stays in the second-level cache, a tile's rows of A in the first.

    Any positive values are right. Chromium, 512^3: from (96, 64, 256) to (512, 256, 512) all within 5 %. For more
    threads there are two blocks for each at least, as equal as they can be; where the run decides on m or n the rule is
    simpler, since it is printed, sent and evaluated for each product (MiniLM: 600 ms instead of 90 in Pyodide).
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
    return mc, sh.select(sh.compare("le", m, 8), wide, nc), kc


def row_block(m: AnyDim, columns: AnyDim, threads: int) -> AnyDim:
    """mc for so many column blocks: a multiple of 12 rows, which every tile divides; as many blocks for each thread."""
    rows = sh.maximum(sh.ceildiv(m, 192), sh.ceildiv(2 * threads, sh.maximum(columns, 1)))
    rows = sh.ceildiv(rows, threads) * threads
    return sh.clamp(sh.ceildiv(sh.ceildiv(m, rows), 12) * 12, 24, 192)


def units(m: AnyDim, n: AnyDim, batch: AnyDim, mc: AnyDim, nc: AnyDim) -> AnyDim:
    return batch * sh.ceildiv(m, mc) * sh.ceildiv(n, nc)


def scratch_bytes(nc: AnyDim, kc: AnyDim) -> AnyDim:
    """Per thread; thread t uses scratch + t * scratch_bytes."""
    return sh.ceildiv(nc, PANEL) * PANEL * (sh.ceildiv(kc, 4) * 4) * 4


def packed_floats(n: AnyDim, k: AnyDim) -> AnyDim:
    """Size of one packed matrix."""
    return sh.ceildiv(n, PANEL) * PANEL * k


def set_flags(f: Function, to: int, k0: int, taken: int, k: int, accumulate: bool) -> None:
    """FIRST on the first block of k (unless C is added to), LAST on the last."""
    f.emit(k0, "i32.eqz").i32(0 if accumulate else FIRST).emit("i32.mul")
    f.emit(k0, taken, "i32.add", k, "i32.ge_u").i32(LAST).emit("i32.mul", "i32.or").set(to)


def _decode(f: Function, w: dict[str, int], unit: int, p: dict[str, int]) -> None:
    """Corner and size of the block of a unit: row varies fastest, then col, then batch."""
    with f.scratch("i32", 2) as (count, rest):
        for at, size, extent, step, source in (("row", "rows", "m", "mc", unit), ("col", "cols", "n", "nc", rest)):
            ceil_div(f, w[extent], w[step]).set(count)
            f.emit(source, count, "i32.rem_u", w[step], "i32.mul").set(p[at])
            f.emit(w[extent], p[at], "i32.sub").set(p[size])
            minimum(f, p[size], p[size], w[step])
            f.emit(source, count, "i32.div_u").set(rest)
        f.emit(rest).set(p["batch"])


def _addresses(f: Function, w: dict[str, int], p: dict[str, int]) -> None:
    f.emit(p["batch"], w["inner"], "i32.div_u").set(p["high"])
    f.emit(p["batch"], w["inner"], "i32.rem_u").set(p["low"])
    element(f, w["a"], (p["high"], w["ta"]), (p["low"], w["sa"]), (p["row"], w["lda"])).set(p["a"])
    element(f, w["c"], (p["high"], w["tc"]), (p["low"], w["sc"]), (p["row"], w["ldc"]))
    f.emit(p["col"]).i32(2).emit("i32.shl", "i32.add").set(p["c"])
    for name, source in (("lda", "lda"), ("ldc", "ldc")):
        f.emit(w[source]).i32(2).emit("i32.shl").set(p[name])


def _unit(
    module: Module, kind: str, arithmetic: Arithmetic, epilogue: Epilogue, accumulate: bool, first: int
) -> Function:
    """(args, unit, scratch, reuse): one block of C; reuse: the scratch already holds its panels."""
    panels = panels_block(module, arithmetic, epilogue.tile())
    words = (len(BUFFERS), first + PARAMS.index("ldb"))
    b = right_operand(module, kind, arithmetic, epilogue.tile(), words)
    f = module.function("matmul_unit", ["i32"] * 4, export=False)
    args, unit, scratch, reuse = f.params
    w = load_words(f, BUFFERS) | load_words(f, PARAMS, first)
    p = {name: f.local("i32") for name in (*BLOCK, "high", "low")}
    k0 = f.local("i32")
    at = Block(f, w, p, k0, scratch, reuse)
    f.emit(args).set(p["args"]).emit(w["bias"]).set(p["bias"])
    for name, size in (("a", 4), ("b", 2 if kind in HALVES else 4)):
        f.emit(w[name], w["o" + name]).i32(size).emit("i32.mul", "i32.add").set(w[name])
    _decode(f, w, unit, p)
    _addresses(f, w, p)
    with f.block() as done:
        if b.few_rows is not None:
            f.emit(w["m"]).i32(b.few).emit("i32.le_s")
            with f.if_():  # all of k at once
                b.address(at).set(p["b"]).emit(w["k"]).set(p["k"])
                b.stride(at).set(p["ldb"])
                set_flags(f, p["flags"], k0, p["k"], w["k"], accumulate)
                b.multiply_few(at)
                f.br(done)
        with f.loop() as again:
            f.emit(w["k"], k0, "i32.sub").set(p["k"])
            minimum(f, p["k"], p["k"], w["kc"])
            set_flags(f, p["flags"], k0, p["k"], w["k"], accumulate)
            b.panels(at)
            call_block(f, panels, p)
            f.emit(p["k"]).i32(2).emit("i32.shl", p["a"], "i32.add").set(p["a"])
            f.emit(k0, p["k"], "i32.add").tee(k0).emit(w["k"], "i32.lt_u").br_if(again)
    epilogue.finish(f, p)
    return f


def _quantise(f: Function, w: dict[str, int], digits: int) -> None:
    """Where rows are few, their records once for all units of this call."""
    _, begin, end, _ = f.params
    with f.scratch("i32", 2) as (a, step):
        f.emit(0).mem("i32.load", 4 * BUFFERS.index("a")).set(a).emit(w["lda"]).i32(2).emit("i32.shl").set(step)
        f.emit(begin, end, "i32.lt_s", w["m"]).i32(FEW).emit("i32.le_s", "i32.and")
        with f.if_():
            f.emit(a, step, w["m"], w["k"], w["ldb"], w["scratch"]).call(quantise_rows(f.module, digits))


def matmul(
    module: Module,
    name: str,
    kind: str,
    *,
    arithmetic: Arithmetic,
    epilogue: Epilogue | None = None,
    accumulate: bool = False,
    extra: int = 0,
) -> Function:
    """Emit the kernel (args, begin, end, tid); see the module's docstring for its argument block.

    kind: how B lies, as above; accumulate: add to C; extra: buffers of the epilogue's own, after `scratch`
    """
    epilogue = Epilogue() if epilogue is None else epilogue
    first = len(BUFFERS) + extra
    key = ("matmul_unit", kind, arithmetic, epilogue.block_key(), accumulate, first)
    unit = module.once(key, lambda: _unit(module, kind, arithmetic, epilogue, accumulate, first))
    f = module.function(name, KERNEL)
    args, begin, end, tid = f.params
    w = load_words(f, ("scratch",), BUFFERS.index("scratch")) | load_words(f, PARAMS, first)
    block, previous = f.locals("i32", 2)
    f.emit(w["nc"]).i32(PANEL - 1).emit("i32.add").i32(-PANEL).emit("i32.and", w["kc"])
    f.i32(3).emit("i32.add").i32(-4).emit("i32.and", "i32.mul").i32(2)
    f.emit("i32.shl", tid, "i32.mul", w["scratch"], "i32.add").set(w["scratch"])
    f.i32(-1).set(previous)
    if kind in KINDS and KINDS[kind].digits:
        _quantise(f, w, KINDS[kind].digits)
    with f.until(begin, end):
        f.emit(begin)
        ceil_div(f, w["m"], w["mc"]).emit("i32.div_u").set(block)
        f.emit(args, begin, w["scratch"], block, previous, "i32.eq", w["k"], w["kc"], "i32.le_u", "i32.and").call(unit)
        f.emit(block).set(previous)
    return f


def pack_b(module: Module, name: str, kind: str) -> Function:
    """Emit a kernel that packs B ("rows" or "cols") into panels.

    Argument block: buffers source, packed; parameters n k batch ld s_source s_packed inner t_source offset (strides in
    floats; s_packed is usually `packed_floats(n, k)`; batches come in groups of `inner`, which are t_source apart; the
    first is at `offset`). Work units: batch * ceil(n / 64).
    """
    packer = (pack_rows if kind == "rows" else pack_cols)(module)
    f = module.function(name, KERNEL)
    _, begin, end, _ = f.params
    w = load_words(f, (*PACK_BUFFERS, *PACK_PARAMS))
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
        at = (col, one if kind == "rows" else w["ld"])
        element(f, w["source"], (high, w["t_source"]), (low, w["s_source"]), at)
        f.emit(w["ld"]).i32(2).emit("i32.shl", w["k"], cols)
        element(f, w["packed"], (batch, w["s_packed"]), (col, w["k"])).emit(step).call(packer)
    return f


def pack_units(n: AnyDim, batch: AnyDim = 1) -> AnyDim:
    return batch * sh.ceildiv(n, PACK_COLUMNS)
