"""C[b, m, n] = A[b, m, k] * B[b, k, n] in float64: register tiles of 4 rows and 4 columns over packed panels.

Rows of A and of C are contiguous, and B has any strides: a work unit packs its block of B, [cols / 4][k][4], block by
block of k, unless it has few rows and rows of B are contiguous. NaN and infinities propagate; K = 0 gives zeros.

Work units: batch * ceil(m / mc) * ceil(n / nc) blocks of C; row blocks vary fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, helper, once
from ..printer.values import I32, POINTERS, V128, Ptr, constant, f64x2, minimum, select, shuffle32
from .arguments import KERNEL, ArgumentBlock, Word
from .register_tile import block_of_unit

HEIGHT, WIDTH = 4, 4  # of a tile; it needs 8 vector registers for sums, 2 for the panel and 1 for a splat
FEW = 3  # rows for which packing B costs more than reading it in place
STRETCH = 16  # columns that few rows compute together


class Buffers(NamedTuple, Generic[Word]):
    a: Word
    b: Word
    c: Word
    scratch: Word


class Params(NamedTuple, Generic[Word]):
    """Strides are in elements. Batches come in groups of `inner`."""

    m: Word
    n: Word
    k: Word
    lda: Word
    step_k: Word  # of B
    step_n: Word
    ldc: Word
    stride_a: Word  # between batches of a group
    stride_b: Word
    stride_c: Word
    mc: Word  # block sizes; nc is a multiple of 16
    nc: Word
    kc: Word
    inner: Word
    outer_a: Word  # between groups
    outer_b: Word
    outer_c: Word
    offset_a: Word  # where A and B start in their buffers
    offset_b: Word


ARGUMENTS = ArgumentBlock(Buffers._fields, Params._fields, "c")


def blocks(m: AnyDim, n: AnyDim, k: AnyDim) -> tuple[AnyDim, AnyDim, AnyDim]:
    """(mc, nc, kc): the packed block of B has at most 256 KiB, and 4 rows of A of it fit the first-level cache."""
    return sh.clamp(m, 1, 192), 128, sh.clamp(k, 1, 256)


def scratch_bytes(nc: AnyDim, kc: AnyDim) -> AnyDim:
    return nc * kc * 8


def _multiply_add(f: Function, total: V128, x: V128, y: V128, relaxed: bool) -> None:
    f.set(total, f64x2.relaxed_madd(x, y, total) if relaxed else f64x2.add(f64x2.mul(x, y), total))


def _store(f: Function, address: Ptr, values: Sequence[V128], cols: I32) -> None:
    """Store `cols` doubles, 1 to 4."""
    with f.if_(cols.ge_s(WIDTH)):
        for n, x in enumerate(values):
            f.store(address, x, 16 * n)
        f.otherwise()
        for n, x in enumerate(values):
            for lane in (0, 1):
                with f.if_(cols.gt_s(2 * n + lane)):
                    f.store_lane("v128.store64_lane", address, x, lane, 16 * n + 8 * lane)


def _steps(
    f: Function, pointers: Sequence[Ptr], panel: Ptr, sums: Sequence[Sequence[V128]], count: int, relaxed: bool
) -> None:
    """Add the products of `count` steps of k. Cranelift moves all loads to the beginning and makes three instructions
    of a splat of a load, so there two steps share a load of two elements (docs/design/cpu-kernels.md)."""
    shared = f.module.cranelift and count == 2
    with f.scratch("v128", 3) as (low, high, x), f.scratch("v128", HEIGHT if shared else 0) as pairs:
        for pointer, pair in zip(pointers, pairs, strict=False):
            f.set(pair, pointer.load())
        for u in range(count):
            f.set(low, panel.load(32 * u)).set(high, panel.load(32 * u + 16))
            for r, (pointer, (s, t)) in enumerate(zip(pointers, sums, strict=True)):
                if shared:
                    f.set(x, shuffle32(pairs[r], pairs[r], 2 * u, 2 * u + 1, 2 * u, 2 * u + 1))
                else:
                    f.set(x, pointer.load(8 * u, "v128.load64_splat"))
                _multiply_add(f, s, x, low, relaxed)
                _multiply_add(f, t, x, high, relaxed)


@helper("doubles_tile")
def _tile(
    f: Function, a: Ptr, lda: I32, panel: Ptr, k: I32, c: Ptr, ldc: I32, rows: I32, cols: I32, first: I32,
    *, relaxed: bool,
) -> None:  # fmt: skip
    """Compute one tile; rows past the end repeat the last one."""
    pointers, targets, (count,) = f.pointers(HEIGHT), f.pointers(HEIGHT), f.integers(1)
    sums = [f.vectors(2) for _ in range(HEIGHT)]
    for r in range(HEIGHT):
        f.set(count, select(r, rows - 1, constant(r).lt_s(rows)))
        f.set(pointers[r], a + count * lda).set(targets[r], c + count * ldc)
    full = 2 if f.module.cranelift else 4
    for unroll in (full, 1):
        with f.if_(count.tee(k // full if unroll > 1 else k % full)), f.loop() as again:
            _steps(f, pointers, panel, sums, unroll, relaxed)
            for pointer in pointers:
                f.add(pointer, 8 * unroll)
            f.add(panel, 32 * unroll).br_if(again, count.tee(count - 1))
    with f.if_(first.eqz()):  # the scratch of the sums so far is C itself; rows that repeat are stored after all loads
        for target, pair in zip(targets, sums, strict=True):
            for n, s in enumerate(pair):
                with f.if_(cols.gt_s(2 * n + 1)):
                    f.set(s, f64x2.add(s, target.load(16 * n)))
                    f.otherwise().set(s, f64x2.add(s, target.load(16 * n, "v128.load64_zero")))
    for target, pair in zip(targets, sums, strict=True):
        _store(f, target, pair, cols)


@helper("doubles_pack")
def _pack(f: Function, source: Ptr, step_k: I32, step_n: I32, k: I32, cols: I32, to: Ptr) -> None:
    """Write panels of 4 columns; steps in bytes. Columns past the end are 0."""
    (n,), (at,) = f.integers(1), f.pointers(1)
    with f.loop() as panels:
        f.set(at, source).set(n, 0)
        with f.until(n, k):
            with f.if_(step_n.eq(8) & cols.ge_s(WIDTH)):
                f.store(to, at.load()).store(to, at.load(16), 16).otherwise()
                for column in range(WIDTH):
                    f.push(to)
                    with f.if_(constant(column).lt_s(cols), result="f64"):
                        f.push(at + step_n * column).mem("f64.load").otherwise().f64(0)
                    f.mem("f64.store", 8 * column)
            f.add(at, step_k).add(to, 8 * WIDTH)
        f.add(source, step_n * WIDTH).br_if(panels, cols.tee(cols - WIDTH).gt_s(0))


@helper("doubles_stretch")
def _stretch(f: Function, a: Ptr, b: Ptr, step: I32, k: I32, c: Ptr, cols: I32, *, relaxed: bool) -> None:
    """Compute one row of C, from rows of B in place: 16 columns together, then one by one."""
    (left,), (element, row) = f.integers(1), f.pointers(2)
    sums, (x,), total = f.vectors(STRETCH // 2), f.vectors(1), f.local("f64")
    with f.countdown(cols, STRETCH):
        for s in sums:
            f.f64(0).emit("f64x2.splat").set(s)
        f.set(element, a).set(row, b).set(left, 0)
        with f.until(left, k):
            f.set(x, element.load(0, "v128.load64_splat"))
            for n, s in enumerate(sums):
                with f.scratch("v128") as (y,):
                    f.set(y, row.load(16 * n))
                    _multiply_add(f, s, x, y, relaxed)
            f.add(element, 8).add(row, step)
        for n, s in enumerate(sums):
            f.store(c, s, 16 * n)
        f.add(b, 8 * STRETCH).add(c, 8 * STRETCH)
    with f.countdown(cols, 1):
        f.f64(0).set(total).set(element, a).set(row, b).set(left, 0)
        with f.until(left, k):
            f.emit(total, element).mem("f64.load").emit(row).mem("f64.load").emit("f64.mul", "f64.add").set(total)
            f.add(element, 8).add(row, step)
        f.emit(c, total).mem("f64.store").add(b, 8).add(c, 8)


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
    tile, pack, stretch = _tile(module, relaxed=relaxed), _pack(module), _stretch(module, relaxed=relaxed)
    f = module.function("doubles_unit", ["i32"] * 3, export=False)
    unit, scratch = f.params[1], POINTERS[2]
    at, w, p = Buffers(*ARGUMENTS.pointers(f)), Params(*ARGUMENTS.integers(f)), f.fields(_Block)
    (one,) = f.integers(1)
    f.set(one, 1)
    with block_of_unit(f, p, unit, (w.m, w.mc), (w.n, w.nc)) as batch:
        f.set(p.high, batch // w.inner).set(p.low, batch % w.inner)
    for to, base, outer, stride, *steps in (
        (p.a, at.a, w.outer_a, w.stride_a, p.row * w.lda, w.offset_a * one),
        (p.b, at.b, w.outer_b, w.stride_b, p.col * w.step_n, w.offset_b * one),
        (p.c, at.c, w.outer_c, w.stride_c, p.row * w.ldc, p.col * one),
    ):
        f.set(to, base + p.high * outer * 8 + p.low * stride * 8 + steps[0] * 8 + steps[1] * 8)
    for step in (w.lda, w.ldc, w.step_k, w.step_n):
        f.set(step, step << 3)
    with f.block() as done:
        with f.if_(w.m.le_s(FEW) & w.step_n.eq(8)):
            with f.countdown(p.rows, 1):
                f.call(stretch, p.a, p.b, w.step_k, w.k, p.c, p.cols).add(p.a, w.lda).add(p.c, w.ldc)
            f.br(done)
        _by_tiles(f, tile, pack, w, p, scratch)
    return f


def _by_tiles(f: Function, tile: Function, pack: Function, w: Params[I32], p: _Block, scratch: Ptr) -> None:
    (k0, taken), (a, c), (rows, cols), (panel, target) = f.integers(2), f.pointers(2), f.integers(2), f.pointers(2)
    f.set(k0, 0)
    with f.loop() as again:
        f.set(taken, w.k - k0).set(taken, minimum(taken, w.kc))
        f.call(pack, p.b, w.step_k, w.step_n, taken, p.cols, scratch).set(a, p.a).set(c, p.c).set(rows, p.rows)
        with f.loop() as each_row:
            f.set(panel, scratch).set(target, c).set(cols, p.cols)
            with f.loop() as each_panel:
                f.call(tile, a, w.lda, panel, taken, target, w.ldc, rows, cols, k0.eqz())
                f.add(panel, taken * (8 * WIDTH)).add(target, 8 * WIDTH)
                f.br_if(each_panel, cols.tee(cols - WIDTH).gt_s(0))
            f.add(a, w.lda * HEIGHT).add(c, w.ldc * HEIGHT).br_if(each_row, rows.tee(rows - HEIGHT).gt_s(0))
        f.add(p.a, taken << 3).add(p.b, taken * w.step_k).br_if(again, k0.tee(k0 + taken).lt_u(w.k))


def matmul(module: Module, name: str, relaxed: bool) -> Function:
    """Emit the kernel (args, begin, end, tid)."""
    unit = _unit(module, relaxed)
    f = module.function(name, KERNEL)
    args, begin, end, tid = f.params
    (scratch,), w = ARGUMENTS.pointers(f, "scratch"), Params(*ARGUMENTS.integers(f))
    f.set(scratch, (w.nc * w.kc << 3) * tid + scratch)
    with f.until(begin, end):
        f.call(unit, args, begin, scratch)
    return f
