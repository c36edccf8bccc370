"""Blockwise attention: a product, a procedure over its rows and a second product, one block of rows after the other.

The three members are the kernels that would otherwise run one after the other. This kernel's argument block contains
theirs, without the address of the matrix between them (scores [batch, m, n], which the procedure overwrites). For each
block of
rows, each member is called with its work units of that block, and with the address that the whole matrix would have if
this block were in the thread's scratch. So members need no code of their own for blocks, and results do not depend on
blocks.

Argument block: the buffers of the three, scratch; the parameters of the three, `Params`.

Work units: batch * row_blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim

from ..printer.assembler import Function, Module
from .arguments import KERNEL, ArgumentBlock, minimum

ALIGN = 64


class Params(NamedTuple):
    m: AnyDim  # rows of a matrix
    n: AnyDim  # their length
    mc: AnyDim  # rows of a block, here and in both products
    row_blocks: AnyDim  # of a matrix, ceil(m / mc)
    columns1: AnyDim  # blocks of columns of the first product
    columns2: AnyDim  # of the second
    size: AnyDim  # bytes of scratch for each thread, from `scratch_bytes`


@dataclass(frozen=True, slots=True)
class Member:
    """A kernel of the chain; open: its buffers that are the matrix between the products."""

    function: Function
    buffers: int
    params: int
    open: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return 4 * (self.buffers + self.params)


def _arguments(members: Sequence[Member]) -> int:
    """Bytes of the argument blocks at the start of a thread's scratch."""
    return -(-sum(m.bytes for m in members) // ALIGN) * ALIGN


def scratch_bytes(members: Sequence[Member], mc: AnyDim, n: AnyDim) -> AnyDim:
    """Bytes for the arguments of the three members, a block of rows, and 16 bytes that may be read but are not used."""
    return _arguments(members) + sh.ceildiv(4 * mc * n + 16, ALIGN) * ALIGN


def blockwise(module: Module, name: str, members: Sequence[Member]) -> Function:
    """Emit the kernel (args, begin, end, tid)."""
    f = module.function(name, KERNEL)
    args, begin, end, tid = f.params
    own = [str(n) for m in members for n in range(m.buffers)]
    block = ArgumentBlock((*own, "scratch"), Params._fields)
    w = block.load(f, sum(m.params for m in members), ("scratch",))
    matrix, row, rows, first = f.locals("i32", 4)
    f.emit(w["scratch"], tid, w["size"], "i32.mul", "i32.add").set(w["scratch"])
    places = _copy_arguments(f, members, args, w["scratch"])
    with f.until(begin, end):
        f.emit(begin, w["row_blocks"], "i32.rem_u", w["mc"], "i32.mul").set(row)
        f.emit(w["m"], row, "i32.sub").set(rows)
        minimum(f, rows, rows, w["mc"])
        f.emit(begin, w["row_blocks"], "i32.div_u", w["m"], "i32.mul", row, "i32.add").set(first)
        f.emit(w["scratch"]).i32(_arguments(members)).emit("i32.add", first, w["n"], "i32.mul").i32(2)
        f.emit("i32.shl", "i32.sub").set(matrix)
        for member, at in zip(members, places, strict=True):
            for n in member.open:
                f.emit(w["scratch"], matrix).mem("i32.store", at + 4 * n)
        _columns(f, members[0], places[0], w, begin, w["columns1"])
        f.emit(w["scratch"]).i32(places[1]).emit("i32.add", first, first, rows, "i32.add").i32(0)
        f.call(members[1].function)
        _columns(f, members[2], places[2], w, begin, w["columns2"])
    return f


def _copy_arguments(f: Function, members: Sequence[Member], args: int, to: int) -> list[int]:
    """Copy the members' argument blocks, one after the other; returns their addresses."""
    places = []
    at, buffer, param = 0, 0, 4 * (sum(m.buffers for m in members) + 1)
    for m in members:
        places.append(at)
        for source, size in ((buffer, 4 * m.buffers), (param, 4 * m.params)):
            for word in range(0, size, 4):
                f.emit(to, args).mem("i32.load", source + word).mem("i32.store", at + word)
            at += size
        buffer += 4 * m.buffers
        param += 4 * m.params
    return places


def _columns(f: Function, member: Member, at: int, w: dict[str, int], unit: int, count: int) -> None:
    """Call a product for each of its blocks in these rows: of its units, rows vary fastest, then columns."""
    with f.scratch("i32", 2) as (q, column):
        row_blocks = w["row_blocks"]
        f.emit(unit, row_blocks, "i32.div_u", count, "i32.mul", row_blocks, "i32.mul", unit, row_blocks, "i32.rem_u")
        f.emit("i32.add").set(q).i32(0).set(column)
        with f.until(column, count):
            f.emit(w["scratch"]).i32(at).emit("i32.add", q, q).i32(1).emit("i32.add").i32(0).call(member.function)
            f.emit(q, w["row_blocks"], "i32.add").set(q)
