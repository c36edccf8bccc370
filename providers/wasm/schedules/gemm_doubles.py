"""C[b, m, n] = A[b, m, k] * B[b, k, n] in float64: register tiles of 4 rows and 4 columns over packed panels.

Rows of A and of C are contiguous, and B has any strides: a work unit packs its block of B, [cols / 4][k][4], block by
block of k, unless it has few rows and rows of B are contiguous. NaN and infinities propagate; K = 0 gives zeros.

Work units: batch * ceil(m / mc) * ceil(n / nc) blocks of C; row blocks vary fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, once
from ..printer.values import I32, Ptr
from .arguments import KERNEL, ArgumentBlock, element, minimum
from .register_tile import block_of_unit

HEIGHT, WIDTH = 4, 4  # of a tile; it needs 8 vector registers for sums, 2 for the panel and 1 for a splat
FEW = 3  # rows for which packing B costs more than reading it in place
STRETCH = 16  # columns that few rows compute together


class Buffers(NamedTuple):
    a: Tensor
    b: Tensor
    c: Tensor
    scratch: Tensor


class Params(NamedTuple):
    """Strides are in elements. Batches come in groups of `inner`."""

    m: AnyDim
    n: AnyDim
    k: AnyDim
    lda: AnyDim
    step_k: AnyDim  # of B
    step_n: AnyDim
    ldc: AnyDim
    stride_a: AnyDim  # between batches of a group
    stride_b: AnyDim
    stride_c: AnyDim
    mc: AnyDim  # block sizes; nc is a multiple of 16
    nc: AnyDim
    kc: AnyDim
    inner: AnyDim
    outer_a: AnyDim  # between groups
    outer_b: AnyDim
    outer_c: AnyDim
    offset_a: AnyDim  # where A and B start in their buffers
    offset_b: AnyDim


ARGUMENTS = ArgumentBlock(Buffers._fields, Params._fields, "c")


def blocks(m: AnyDim, n: AnyDim, k: AnyDim) -> tuple[AnyDim, AnyDim, AnyDim]:
    """(mc, nc, kc): the packed block of B has at most 256 KiB, and 4 rows of A of it fit the first-level cache."""
    return sh.clamp(m, 1, 192), 128, sh.clamp(k, 1, 256)


def scratch_bytes(nc: AnyDim, kc: AnyDim) -> AnyDim:
    return nc * kc * 8


def _multiply_add(f: Function, total: int, x: int, y: int, relaxed: bool) -> None:
    if relaxed:
        f.emit(x, y, total, "f64x2.relaxed_madd").set(total)
    else:
        f.emit(x, y, "f64x2.mul", total, "f64x2.add").set(total)


def _store(f: Function, address: int, values: Sequence[Any], cols: int) -> None:
    """Store `cols` doubles, 1 to 4."""
    f.emit(cols).i32(WIDTH).emit("i32.ge_s")
    with f.if_():
        for n, x in enumerate(values):
            f.emit(address, x).mem("v128.store", 16 * n)
        f.otherwise()
        for n, x in enumerate(values):
            for lane in (0, 1):
                f.emit(cols).i32(2 * n + lane).emit("i32.gt_s")
                with f.if_():
                    f.emit(address, x).mem_lane("v128.store64_lane", lane, 16 * n + 8 * lane)


def _steps(
    f: Function, pointers: Sequence[Any], panel: int, sums: Sequence[Sequence[Any]], count: int, relaxed: bool
) -> None:
    """Add the products of `count` steps of k. Cranelift moves all loads to the beginning and makes three instructions
    of a splat of a load, so there two steps share a load of two elements (docs/design/cpu-kernels.md)."""
    shared = f.module.cranelift and count == 2
    with f.scratch("v128", 3) as (low, high, x), f.scratch("v128", HEIGHT if shared else 0) as pairs:
        for pointer, pair in zip(pointers, pairs, strict=False):
            f.emit(pointer).mem("v128.load").set(pair)
        for u in range(count):
            f.emit(panel).mem("v128.load", 32 * u).set(low).emit(panel).mem("v128.load", 32 * u + 16).set(high)
            for r, (pointer, (s, t)) in enumerate(zip(pointers, sums, strict=True)):
                if shared:
                    f.emit(pairs[r], pairs[r]).shuffle32(2 * u, 2 * u + 1, 2 * u, 2 * u + 1).set(x)
                else:
                    f.emit(pointer).mem("v128.load64_splat", 8 * u).set(x)
                _multiply_add(f, s, x, low, relaxed)
                _multiply_add(f, t, x, high, relaxed)


@once
def _tile(module: Module, relaxed: bool) -> Function:
    """(a, lda, panel, k, c, ldc, rows, cols, first): one tile; rows past the end repeat the last one."""
    f = module.function("doubles_tile", ["i32"] * 9, export=False)
    a, lda, panel, k, c, ldc, rows, cols, first = f.params
    pointers, targets, count = f.locals("i32", HEIGHT), f.locals("i32", HEIGHT), f.local("i32")
    sums = [f.locals("v128", 2) for _ in range(HEIGHT)]
    for r in range(HEIGHT):
        f.i32(r).emit(rows).i32(1).emit("i32.sub").i32(r).emit(rows, "i32.lt_s", "select").set(count)
        f.emit(a, count, lda, "i32.mul", "i32.add").set(pointers[r])
        f.emit(c, count, ldc, "i32.mul", "i32.add").set(targets[r])
    full = 2 if module.cranelift else 4
    for unroll in (full, 1):
        f.emit(k).i32(full).emit("i32.div_u" if unroll > 1 else "i32.rem_u").tee(count)
        with f.if_(), f.loop() as again:
            _steps(f, pointers, panel, sums, unroll, relaxed)
            for pointer in pointers:
                f.add(pointer, 8 * unroll)
            f.add(panel, 32 * unroll).emit(count).i32(1).emit("i32.sub").tee(count).br_if(again)
    f.emit(first, "i32.eqz")
    with f.if_():  # the scratch of the sums so far is C itself; rows that repeat are stored after all are loaded
        for target, pair in zip(targets, sums, strict=True):
            for n, s in enumerate(pair):
                f.emit(cols).i32(2 * n + 1).emit("i32.gt_s")
                with f.if_():
                    f.emit(s, target).mem("v128.load", 16 * n).emit("f64x2.add").set(s)
                    f.otherwise().emit(s, target).mem("v128.load64_zero", 16 * n).emit("f64x2.add").set(s)
    for target, pair in zip(targets, sums, strict=True):
        _store(f, target, pair, cols)
    return f


@once
def _pack(module: Module) -> Function:
    """(source, step_k, step_n, k, cols, to): write panels of 4 columns; steps in bytes. Columns past the end are 0."""
    f = module.function("doubles_pack", ["i32"] * 6, export=False)
    source, step_k, step_n, k, cols, to = f.params
    n, at = f.locals("i32", 2)
    with f.loop() as panels:
        f.emit(source).set(at).i32(0).set(n)
        with f.until(n, k):
            f.emit(step_n).i32(8).emit("i32.eq", cols).i32(WIDTH).emit("i32.ge_s", "i32.and")
            with f.if_():
                f.emit(to, at).mem("v128.load").mem("v128.store").emit(to, at).mem("v128.load", 16)
                f.mem("v128.store", 16)
                f.otherwise()
                for column in range(WIDTH):
                    f.emit(to).i32(column).emit(cols, "i32.lt_s")
                    with f.if_(result="f64"):
                        f.emit(at, step_n).i32(column).emit("i32.mul", "i32.add").mem("f64.load").otherwise().f64(0)
                    f.mem("f64.store", 8 * column)
            f.emit(at, step_k, "i32.add").set(at).add(to, 8 * WIDTH)
        f.emit(source, step_n).i32(WIDTH).emit("i32.mul", "i32.add").set(source)
        f.emit(cols).i32(WIDTH).emit("i32.sub").tee(cols).i32(0).emit("i32.gt_s").br_if(panels)
    return f


@once
def _stretch(module: Module, relaxed: bool) -> Function:
    """(a, b, step_k, k, c, cols): one row of C, from rows of B in place: 16 columns together, then one by one."""
    f = module.function("doubles_stretch", ["i32"] * 6, export=False)
    a, b, step, k, c, cols = f.params
    left, element_, row = f.locals("i32", 3)
    sums, x, total = f.locals("v128", STRETCH // 2), f.local("v128"), f.local("f64")

    def each_k() -> None:
        f.add(element_, 8).emit(row, step, "i32.add").set(row)

    with f.countdown(cols, STRETCH):
        for s in sums:
            f.f64(0).emit("f64x2.splat").set(s)
        f.emit(a).set(element_).emit(b).set(row).i32(0).set(left)
        with f.until(left, k):
            f.emit(element_).mem("v128.load64_splat").set(x)
            for n, s in enumerate(sums):
                with f.scratch("v128", 1) as (y,):
                    f.emit(row).mem("v128.load", 16 * n).set(y)
                    _multiply_add(f, s, x, y, relaxed)
            each_k()
        for n, s in enumerate(sums):
            f.emit(c, s).mem("v128.store", 16 * n)
        f.add(b, 8 * STRETCH).add(c, 8 * STRETCH)
    with f.countdown(cols, 1):
        f.f64(0).set(total).emit(a).set(element_).emit(b).set(row).i32(0).set(left)
        with f.until(left, k):
            f.emit(total, element_).mem("f64.load").emit(row).mem("f64.load").emit("f64.mul", "f64.add").set(total)
            each_k()
        f.emit(c, total).mem("f64.store").add(b, 8).add(c, 8)
    return f


class _Block(NamedTuple):
    row: I32
    rows: I32
    col: I32
    cols: I32
    high: I32
    low: I32
    a: Ptr
    b: Ptr
    c: Ptr


@once
def _unit(module: Module, relaxed: bool) -> Function:
    """(args, unit, scratch): one block of C."""
    tile, pack, stretch = _tile(module, relaxed), _pack(module), _stretch(module, relaxed)
    f = module.function("doubles_unit", ["i32"] * 3, export=False)
    _, unit, scratch = f.params
    w = ARGUMENTS.load(f, 0, Buffers._fields)
    p = f.fields(_Block)
    one = f.local("i32")
    f.i32(1).set(one)
    with block_of_unit(f, p, unit, (w["m"], w["mc"]), (w["n"], w["nc"])) as batch:
        f.emit(batch, w["inner"], "i32.div_u").set(p.high).emit(batch, w["inner"], "i32.rem_u").set(p.low)
    steps = {"a": (p.row, w["lda"]), "b": (p.col, w["step_n"]), "c": (p.row, w["ldc"])}
    for name, step in steps.items():
        more = [(w["offset_" + name], one)] if name != "c" else [(p.col, one)]
        element(f, w[name], (p.high, w["outer_" + name]), (p.low, w["stride_" + name]), step, *more, size=8).set(
            getattr(p, name)
        )
    for name in ("lda", "ldc", "step_k", "step_n"):
        f.emit(w[name]).i32(3).emit("i32.shl").set(w[name])
    with f.block() as done:
        f.emit(w["m"]).i32(FEW).emit("i32.le_s", w["step_n"]).i32(8).emit("i32.eq", "i32.and")
        with f.if_():
            with f.countdown(p.rows, 1):
                f.emit(p.a, p.b, w["step_k"], w["k"], p.c, p.cols).call(stretch)
                for name, stride in (("a", "lda"), ("c", "ldc")):
                    f.emit(getattr(p, name), w[stride], "i32.add").set(getattr(p, name))
            f.br(done)
        _by_tiles(f, tile, pack, w, p, scratch)
    return f


def _by_tiles(f: Function, tile: Function, pack: Function, w: dict[str, Any], p: _Block, scratch: int) -> None:
    k0, taken, a, c, rows, cols, panel, target = f.locals("i32", 8)
    f.i32(0).set(k0)
    with f.loop() as again:
        f.emit(w["k"], k0, "i32.sub").set(taken)
        minimum(f, taken, taken, w["kc"])
        f.emit(p.b, w["step_k"], w["step_n"], taken, p.cols, scratch).call(pack)
        f.emit(p.a).set(a).emit(p.c).set(c).emit(p.rows).set(rows)
        with f.loop() as each_row:
            f.emit(scratch).set(panel).emit(c).set(target).emit(p.cols).set(cols)
            with f.loop() as each_panel:
                f.emit(a, w["lda"], panel, taken, target, w["ldc"], rows, cols, k0, "i32.eqz").call(tile)
                f.emit(panel, taken).i32(8 * WIDTH).emit("i32.mul", "i32.add").set(panel).add(target, 8 * WIDTH)
                f.emit(cols).i32(WIDTH).emit("i32.sub").tee(cols).i32(0).emit("i32.gt_s").br_if(each_panel)
            for at, step in ((a, "lda"), (c, "ldc")):
                f.emit(at, w[step]).i32(HEIGHT).emit("i32.mul", "i32.add").set(at)
            f.emit(rows).i32(HEIGHT).emit("i32.sub").tee(rows).i32(0).emit("i32.gt_s").br_if(each_row)
        f.emit(p.a, taken).i32(3).emit("i32.shl", "i32.add").set(p.a)
        f.emit(p.b, taken, w["step_k"], "i32.mul", "i32.add").set(p.b)
        f.emit(k0, taken, "i32.add").tee(k0).emit(w["k"], "i32.lt_u").br_if(again)


def matmul(module: Module, name: str, relaxed: bool) -> Function:
    """Emit the kernel (args, begin, end, tid)."""
    unit = _unit(module, relaxed)
    f = module.function(name, KERNEL)
    args, begin, end, tid = f.params
    w = ARGUMENTS.load(f, 0, ("scratch",))
    f.emit(w["nc"], w["kc"], "i32.mul").i32(3).emit("i32.shl", tid, "i32.mul", w["scratch"], "i32.add").set(
        w["scratch"]
    )
    with f.until(begin, end):
        f.emit(args, begin, w["scratch"]).call(unit)
    return f
