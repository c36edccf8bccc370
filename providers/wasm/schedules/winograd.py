"""3x3 convolutions with stride 1 by Winograd's forms (winograd_forms.py): F(4x4, 3x3) of floats, F(2x2, 3x3) of pairs
of int16.

A patch d of the input (patches overlap by two) becomes V = Bt d B, a kernel g becomes U = G g Gt (once, in the init
block), and the outputs are At (sum over channels of U V) A. For each point of a patch that sum is a matrix
product of U [M][C] with V [C][tiles], which register tiles do (register_tile.py); V is written in their panel layout.

Four adjacent tiles are a *quad*, the four lanes of every transform. A work unit is a few whole rows of tiles, so that
its outputs are whole rows of y, and a group of filters.

An element of x and u is a float or, of INT16, the codes of two channels; y is int32 then.
Accuracy of floats: with these points the largest error is about 3e-6 of the largest output (256 channels), a quarter of
that with the usual points 0, +-1, +-2, and six times that of the direct sum.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module, once
from ..printer.values import POINTERS
from .arguments import KERNEL, ArgumentBlock, ConvBuffers, ceil_div, minimum
from .arithmetic import Arithmetic
from .register_tile import (
    FIRST,
    LAST,
    NO_EPILOGUE,
    Block,
    Epilogue,
    apply_epilogue,
    call_block,
    call_units,
    panels_block,
    store_part,
)  # fmt: skip
from .winograd_direct import direct_row
from .winograd_forms import FLOATS, INTEGERS, Form

TILES = 64  # of 16 outputs, in a work unit
CHUNK = 32  # filters whose products are stored before they are transformed back


class Params(NamedTuple):
    batch: AnyDim
    c: AnyDim  # channels
    m: AnyDim  # filters
    ih: AnyDim  # extents of the input
    iw: AnyDim
    oh: AnyDim  # of the output
    ow: AnyDim
    ph: AnyDim  # pads at the beginning
    pw: AnyDim
    th: AnyDim  # rows of tiles
    quads: AnyDim  # of a row of tiles
    tr: AnyDim  # rows of tiles of a unit
    mg: AnyDim  # filters of a unit
    bytes: AnyDim  # of a thread's scratch
    um: AnyDim  # rows of U of a point, m or more


ARGUMENTS = ArgumentBlock(ConvBuffers._fields, Params._fields, "y")


def form_of(arithmetic: Arithmetic) -> Form:
    return FLOATS if arithmetic.codes == 1 else INTEGERS


def tiles(rows: AnyDim, quads: AnyDim) -> AnyDim:
    """Return the columns of the products: the tiles of these rows, in whole panels of eight."""
    return sh.ceildiv(rows * quads, 2) * 8


def blocks(
    form: Form, m: int, c: int, th: AnyDim, quads: AnyDim, threads: int, chosen: int | None = None
) -> tuple[AnyDim, int]:
    """Return (tr, mg): a unit has about 64 tiles, and its V (points * c * tiles floats) at most 2 MiB. U is read once
    for each unit (256x28x28: 15.6 ms with 1 MiB, 10.7 with 2 or 4). `chosen`: number of tiles that tuning chose; the
    limit of V grows in proportion."""
    count = chosen or TILES
    most = max(1, min(16 * count // form.step**2, (count << 15) // (form.points * 4 * c)))
    tr = sh.clamp(sh.floordiv(most, quads * 4), 1, th)
    mg = m
    while threads > 1 and mg > CHUNK and sh.compare("lt", units(1, m, th, tr, mg), 2 * threads) == 1:
        mg = -(-mg // (2 * CHUNK)) * CHUNK
    return tr, mg


def units(batch: AnyDim, m: int, th: AnyDim, tr: AnyDim, mg: int) -> AnyDim:
    return batch * sh.ceildiv(th, tr) * -(-m // mg)


def scratch_bytes(form: Form, c: int, tr: AnyDim, quads: AnyDim) -> AnyDim:
    return form.points * (4 * (c + CHUNK) * tiles(tr, quads) + 16)


# ── input ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _columns(f: Function, form: Form, w: dict[str, Any], q: int, masks: list[Any], offsets: list[Any]) -> None:
    """Set masks of the input columns of a quad, and the offsets from which to load each four (the row's start if none
    is in x)."""
    with f.scratch("i32", 1) as (x,), f.scratch("v128", 1) as (lanes,):
        for n, (mask, offset) in enumerate(zip(masks, offsets, strict=True)):
            f.emit(q).i32(4 * form.step).emit("i32.mul").i32(4 * n).emit("i32.add", w["pw"], "i32.sub").tee(x)
            f.emit("i32x4.splat").v128(struct.pack("<4i", 0, 1, 2, 3)).emit("i32x4.add").set(lanes)
            f.emit(lanes, w["iw"], "i32x4.splat", "i32x4.lt_u").set(mask)
            f.emit(x).i32(2).emit("i32.shl").i32(0).emit(mask, "v128.any_true", "select").set(offset)


def _row(f: Function, form: Form, base: int, masks: list[Any], offsets: list[Any], temp: int, at: int) -> None:
    """Load the columns of four tiles from one input row, transform them and store them to temp."""
    with f.scratch("v128", form.loads + 1) as v, f.scratch("v128", form.side) as to:
        for x, mask, offset in zip(v, masks, offsets, strict=False):
            f.emit(base, offset, "i32.add").mem("v128.load").emit(mask, "v128.and").set(x)
        form.forward(f, form.columns(f, v), to)
        for j, x in enumerate(to):
            f.emit(temp, x).mem("v128.store", 16 * (at + j))


@once
def patches(module: Module, form: Form, extra: int, flat: bool = False) -> Function:
    """(args, x, ty, rows, v, temp, step): write V of these rows of tiles, in panels; `step` bytes between points.
    flat: (…, count, ld): for `count` channels, [channel] `ld` bytes apart of [tile]."""
    f = module.function("winograd_input", ["i32"] * (9 if flat else 7), export=False)
    _, x, ty, rows, v, temp, step, *more = f.params
    w = ARGUMENTS.load(f, extra, ())
    channels, ld = more or (w["c"], 0)
    r, q, number, c, source, to, pointer, base, plane = f.locals("i32", 9)
    lines = f.locals("i32", form.side)
    offsets, masks = f.locals("i32", form.loads), f.locals("v128", form.loads)
    f.emit(w["ih"], w["iw"], "i32.mul").i32(2).emit("i32.shl").set(plane)
    with f.until(r, rows):
        for n, line in enumerate(lines):
            f.emit(ty, r, "i32.add").i32(form.step).emit("i32.mul").i32(n).emit("i32.add", w["ph"], "i32.sub").tee(line)
            f.emit(w["iw"], "i32.mul").i32(2).emit("i32.shl").i32(-1).emit(line, w["ih"], "i32.lt_u", "select")
            f.set(line)
        f.i32(0).set(q)
        with f.until(q, w["quads"]):
            _columns(f, form, w, q, masks, offsets)
            if flat:
                f.emit(v, number).i32(4).emit("i32.shl", "i32.add").set(to)
            else:
                f.emit(number).i32(1).emit("i32.shr_u", w["c"], "i32.mul").i32(5).emit("i32.shl", v, "i32.add")
                f.emit(number).i32(1).emit("i32.and").i32(4).emit("i32.shl", "i32.add").set(to)
            f.add(number, 1).emit(x).set(source).i32(0).set(c)
            with f.until(c, channels):
                for n, line in enumerate(lines):
                    f.emit(line).i32(0).emit("i32.ge_s")
                    with f.if_():
                        f.emit(source, line, "i32.add").set(base)
                        _row(f, form, base, masks, offsets, temp, form.side * n)
                        f.otherwise()
                        for j in range(form.side):
                            f.emit(temp).f32x4(0).mem("v128.store", 16 * (form.side * n + j))
                _down(f, form, temp, to, pointer, step)
                f.emit(source, plane, "i32.add").set(source)
                f.add(to, 32) if not flat else f.emit(to, ld, "i32.add").set(to)
    return f


def _down(f: Function, form: Form, temp: int, to: int, pointer: int, step: int) -> None:
    """Transform the columns of temp; point (i, j) goes to `to` + (side * i + j) * step."""
    side = form.side
    with f.scratch("v128", side) as d, f.scratch("v128", side) as t:
        for j in range(side):
            for n, x in enumerate(d):
                f.emit(temp).mem("v128.load", 16 * (side * n + j)).set(x)
            form.forward(f, d, t)
            f.emit(to, step).i32(j).emit("i32.mul", "i32.add").set(pointer)
            for x in t:
                f.emit(pointer, x).mem("v128.store").emit(pointer, step).i32(side)
                f.emit("i32.mul", "i32.add").set(pointer)


# ── output ────────────────────────────────────────────────────────────────────────────────────────────────────────


@once
def _output(module: Module, form: Form, epilogue: Epilogue, extra: int) -> Function:
    """(args, x, products, step, ld, y, bias, row, rows, ty, trows, temp): outputs of `rows` filters from `row` on.
    x: the image; products: [points] `step` bytes apart of [rows] `ld` bytes apart; y: the plane of the first filter"""
    store_part(module)
    names = ("args", "x", "products", "step", "ld", "y", "bias", "row", "rows", "ty", "trows", "temp")
    f, p = module.internal("winograd_output", names)
    w = ARGUMENTS.load(f, extra, ())
    n, r, q, source, plane = f.locals("i32", 5)
    f.emit(w["oh"], w["ow"], "i32.mul").i32(2).emit("i32.shl").set(plane)
    with f.until(n, p["rows"]):
        f.emit(p["products"]).set(source).i32(0).set(r)
        with f.until(r, p["trows"]):
            f.i32(0).set(q)
            with f.until(q, w["quads"]):
                _quad(f, form, p, w, epilogue, extra, (source, r, q))
                f.add(source, 16)
        f.emit(p["products"], p["ld"], "i32.add").set(p["products"])
        f.emit(p["y"], plane, "i32.add").set(p["y"]).add(p["row"], 1)
    return f


def _quad(
    f: Function, form: Form, p: dict[str, Any], w: dict[str, Any], epilogue: Epilogue, extra: int,
    place: tuple[int, ...],
) -> None:  # fmt: skip
    """Compute the outputs of a quad and a filter. place: its products, row of tiles and number in the row"""
    source, r, q = place
    side, step = form.side, form.step
    with f.scratch("v128", side) as m, f.scratch("v128", step) as to, f.scratch("i32", 4) as (pointer, oy, at, left):
        for j in range(side):
            f.emit(source, p["step"]).i32(j).emit("i32.mul", "i32.add").set(pointer)
            for x in m:
                f.emit(pointer).mem("v128.load").set(x)
                f.emit(pointer, p["step"]).i32(side).emit("i32.mul", "i32.add").set(pointer)
            form.backward(f, m, to)
            for i, x in enumerate(to):
                f.emit(p["temp"], x).mem("v128.store", 16 * (side * i + j))
        f.emit(p["ty"], r, "i32.add").i32(step).emit("i32.mul").set(oy)
        f.emit(oy, w["ow"], "i32.mul", q).i32(4 * step).emit("i32.mul", "i32.add").i32(2)
        f.emit("i32.shl", p["y"], "i32.add").set(at)
        for i in range(step):
            f.emit(oy, w["oh"], "i32.lt_u")
            with f.if_():
                for j, x in enumerate(m):
                    f.emit(p["temp"]).mem("v128.load", 16 * (side * i + j)).set(x)
                form.backward(f, m, to)
                form.outputs(f, to)
                if form is FLOATS:
                    _mend(f, p, extra, to, oy, q)
                f.emit(w["ow"], q).i32(4 * step).emit("i32.mul", "i32.sub").set(left)
                _store(f, p, epilogue, to, at, left)
            f.add(oy, 1).emit(at, w["ow"]).i32(2).emit("i32.shl", "i32.add").set(at)


def _mend(f: Function, p: dict[str, Any], extra: int, to: list[Any], oy: int, q: int) -> None:
    """Compute a row of outputs again if one is infinite or NaN."""
    for n, x in enumerate(to):
        f.emit(x, x, "f32x4.sub", *(["f32x4.add"] if n else []))
    with f.scratch("v128", 1) as (zero,), f.scratch("i32", 1) as (row,):
        f.tee(zero).emit(zero, "f32x4.eq", "i32x4.all_true", "i32.eqz")
        with f.if_():
            free = 16 * FLOATS.side * FLOATS.step  # in temp, behind the vectors of the quad
            f.emit(p["temp"]).i32(free).emit("i32.add").set(row)
            f.emit(p["args"], p["x"], p["row"], oy, q, row).call(direct_row(f.module, ARGUMENTS, extra))
            for n, x in enumerate(to):
                f.emit(row).mem("v128.load", 16 * n).set(x)


def _store(f: Function, p: dict[str, Any], epilogue: Epilogue, values: list[Any], at: int, left: int) -> None:
    """Store the vectors of an output row, of which `left` elements exist."""
    for n, x in enumerate(values):
        f.emit(left).i32(4 * n).emit("i32.gt_s")
        with f.if_(), f.scratch("i32", 1) as (rest,):
            apply_epilogue(f, epilogue, POINTERS[p["bias"]], p["row"], p["row"], x)
            f.emit(left).i32(4 * n).emit("i32.sub").tee(rest).i32(4).emit("i32.ge_s")
            with f.if_():
                f.emit(at, x).mem("v128.store", 16 * n)
                f.otherwise().emit(at).i32(16 * n).emit("i32.add", x, x, rest).call(store_part)


# ── units ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@once
def _unit(module: Module, arithmetic: Arithmetic, epilogue: Epilogue) -> Function:
    """(args, unit, scratch, reuse): one unit; reuse: whether scratch contains its V already."""
    panels, form = panels_block(module, arithmetic, NO_EPILOGUE), form_of(arithmetic)
    forward = patches(module, form, epilogue.extra)
    backward = _output(module, form, epilogue.tile(), epilogue.extra)
    f = module.function("winograd_unit", ["i32"] * 4, export=False)
    args, unit, scratch, reuse = f.params
    w = ARGUMENTS.load(f, epilogue.extra)
    p = f.fields(Block)
    count, ty, rows, end, columns, v_step, y_step, products, temp, point, image = f.locals("i32", 11)
    f.emit(args).set(p.args)
    ceil_div(f, w["m"], w["mg"]).set(count)
    f.emit(unit, count, "i32.rem_u", w["mg"], "i32.mul").tee(p.row).emit(w["mg"], "i32.add").set(end)
    minimum(f, end, end, w["m"])
    f.emit(unit, count, "i32.div_u").set(unit)
    ceil_div(f, w["th"], w["tr"]).set(count)
    f.emit(unit, count, "i32.rem_u", w["tr"], "i32.mul").set(ty).emit(w["th"], ty, "i32.sub").set(rows)
    minimum(f, rows, rows, w["tr"])
    f.emit(unit, count, "i32.div_u").set(p.batch)
    f.emit(w["tr"], w["quads"], "i32.mul").i32(1).emit("i32.add").i32(1).emit("i32.shr_u").i32(3).emit("i32.shl")
    f.set(columns).emit(columns, w["c"], "i32.mul").i32(2).emit("i32.shl").set(v_step)
    f.emit(columns).i32(4 * CHUNK).emit("i32.mul").set(y_step)
    f.emit(scratch, v_step).i32(form.points).emit("i32.mul", "i32.add").tee(products)
    f.emit(y_step).i32(form.points).emit("i32.mul", "i32.add").set(temp)
    f.emit(w["x"], p.batch, w["c"], "i32.mul", w["ih"], "i32.mul", w["iw"], "i32.mul").i32(2)
    f.emit("i32.shl", "i32.add").set(image).emit(reuse, "i32.eqz")
    with f.if_():
        f.emit(args, image, ty, rows, scratch, temp, v_step).call(forward)
    f.emit(w["c"]).tee(p.k).i32(2).emit("i32.shl").tee(p.lda).i32(3).emit("i32.shl").set(p.ldb)
    f.emit(columns).i32(2).emit("i32.shl").set(p.ldc).i32(FIRST | LAST).set(p.flags)
    with f.loop() as again:
        f.emit(end, p.row, "i32.sub").set(p.rows).i32(CHUNK).set(point)
        minimum(f, p.rows, p.rows, point)
        f.emit(w["w"], p.row, p.lda, "i32.mul", "i32.add").set(p.a)
        f.emit(scratch).set(p.b).emit(products).set(p.c).emit(columns).set(p.cols).i32(0).set(point)
        with f.loop() as points:
            call_block(f, panels, p)
            f.emit(p.a, w["um"], p.lda, "i32.mul", "i32.add").set(p.a)
            f.emit(p.b, v_step, "i32.add").set(p.b).emit(p.c, y_step, "i32.add").set(p.c)
            f.add(point, 1).emit(point).i32(form.points).emit("i32.lt_u").br_if(points)
        f.emit(args, image, products, y_step, p.ldc)
        f.emit(p.batch, w["m"], "i32.mul", p.row, "i32.add", w["oh"], "i32.mul", w["ow"], "i32.mul").i32(2)
        f.emit("i32.shl", w["y"], "i32.add", w["bias"], p.row, p.rows, ty, rows, temp).call(backward)
        _finish(f, form, epilogue, p, w, ty, rows)
        f.emit(p.row, p.rows, "i32.add").tee(p.row).emit(end, "i32.lt_u").br_if(again)
    return f


def _finish(f: Function, form: Form, epilogue: Epilogue, p: Block, w: dict[str, Any], ty: int, rows: int) -> None:
    """Call the block's epilogue, for whole rows of y."""
    if epilogue.block:
        f.emit(ty, rows, "i32.add").i32(form.step).emit("i32.mul").set(p.cols)
        minimum(f, p.cols, p.cols, w["oh"])
        f.emit(ty, w["ow"], "i32.mul").i32(form.step).emit("i32.mul").set(p.col)
        f.emit(p.cols, w["ow"], "i32.mul", p.col, "i32.sub").set(p.cols)
        epilogue.finish(f, p)


def winograd(module: Module, name: str, *, arithmetic: Arithmetic, epilogue: Epilogue = NO_EPILOGUE) -> Function:
    """Emit the kernel (args, begin, end, tid)."""
    unit = _unit(module, arithmetic, epilogue)
    f = module.function(name, KERNEL)
    w = ARGUMENTS.load(f, epilogue.extra, ("scratch",))
    f.emit(w["bytes"], f.params[-1], "i32.mul", w["scratch"], "i32.add").set(w["scratch"])
    call_units(f, unit, POINTERS[w["scratch"]], (w["m"], w["mg"]))
    return f
