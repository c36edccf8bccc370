"""The order in which GEMV kernels (one or two rows of A) read the panels of B.

Kernels read panels either one after the other or in turns: from a panel of each third of the columns, one or two KiB at
a time.
Processors prefetch within a page of 4 KiB, so each page may begin with a stall; the pages of three streams begin
together (docs/design/weight-bandwidth.md#three-streams). Float32 is read in turns, except natively, where memories
consist of huge pages. Quantised weights cost more computation, and turns are slower on processors that prefetch
further, so executors time runs to choose an order (docs/design/weight-bandwidth.md#read-order-trial) and write it to
PANEL_ORDER. Kernels add the KiB that they read to CODES_READ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyruntime.codegen.linear_memory import CODES_READ, IN_TURNS, PANEL_ORDER, PREFETCH

from ..printer.assembler import Function, Module
from ..printer.values import I32, pointer, select
from .arguments import minimum
from .register_tile import AHEAD, BLOCK, FIRST, LAST, LINE, PANEL
from .weight_codes import WeightCodes

FEW_ROWS = 16  # largest number of rows that few_rows.py multiplies
GEMV_ROWS = 2  # largest number of rows for which kernels may read weights in panel order
STREAMS, TURN_BYTES = 3, 1024
SUMMED = 128  # k of half floats, 2 KiB, that are summed before they are added to C
PART = (*BLOCK, "steps", "size", "next")
TURN_ARGUMENTS = ("a", "b", "c", "cols", "flags", "col", "steps", "next")  # arguments of PART that each turn computes


@dataclass(frozen=True, slots=True)
class PanelFormat:
    """The format of panels.

    bits: bits of an element; step_bytes: bytes of a block's steps; whole_blocks: turns end where blocks of k end,
    because records of quantised rows contain whole blocks; block: number of k of a block without steps; takes: the
    parameters of part functions
    """

    bits: int
    step_bytes: int = 0
    whole_blocks: bool = False
    block: int = 0
    turn_bytes: int = TURN_BYTES
    takes: tuple[str, ...] = PART

    @staticmethod
    def of(layout: WeightCodes) -> PanelFormat:
        return PanelFormat(layout.bits, layout.step_bytes, layout.digits > 0, SUMMED if layout.bits == 16 else 0)


@dataclass(frozen=True, slots=True)
class StepWords:
    """Positions in the argument block: of the steps' address, of the number of k that share a step, and of the number
    of columns."""

    address: int
    block: int
    columns: int = 0


RowBytes = Callable[[Function, int, int], Function]  # (f, k, size of a block) pushes the bytes of k elements of a row


def float_bytes(f: Function, k: int, _: int) -> Function:
    """RowBytes of rows of float32."""
    return f.emit(k).i32(2).emit("i32.shl")


def part_function(module: Module, name: str) -> tuple[Function, dict[str, Any]]:
    """Return a new function and its parameters by name: a block function of the first panel only.

    steps: address of the steps of the first block; size: number of k of a block; next: address of the codes of the next
    turn, in the last turn of its own codes; prefetches: a local, whether the function prefetches these
    """
    f, p = module.internal(name, PART)
    prefetches = f.local("i32")
    f.set(prefetches, order_has(PREFETCH))
    return f, {**p, "prefetches": prefetches}


def in_panel_order(
    module: Module, name: str, panels: PanelFormat, words: StepWords | None, row_bytes: RowBytes,
    part: Callable[[int], Function], rows: int = 1,
) -> Function:  # fmt: skip
    """Return a block function that calls part functions for the panels in their order.

    words: None without steps; part(n) makes the part function of up to n rows; rows: the most, one or two
    """
    parts = [part(n + 1) for n in range(rows)]
    f, p = module.internal(name, BLOCK)
    turns = _Turns(f, p, panels, words, row_bytes)
    for n, each in enumerate(parts):
        f.emit(p["rows"]).i32(n + 1).emit("i32.eq")
        with f.if_():
            turns.call(each)
    return f


class _Turns:
    """Emits a block function's calls of a part function."""

    def __init__(
        self, f: Function, p: dict[str, Any], panels: PanelFormat, words: StepWords | None, row_bytes: RowBytes
    ) -> None:
        self.f, self.p, self.panels, self.row_bytes = f, p, panels, row_bytes
        self.streams = f.local("i32")
        self.size, self.steps, self.panel_steps, self.per_stream, self.k0, self.k = f.locals("i32", 6)
        if words is None:
            f.emit(p["k"]).i32(1).emit("i32.or").set(self.size)  # k may be 0
        else:
            (f.i32(panels.block) if panels.block else f.emit(p["args"]).mem("i32.load", 4 * words.block)).set(self.size)
            f.emit(p["k"], self.size, "i32.add").i32(1).emit("i32.sub", self.size, "i32.div_u").i32(panels.step_bytes)
            f.emit("i32.mul").set(self.panel_steps)
            f.emit(p["args"]).mem("i32.load", 4 * words.address)
            f.emit(p["col"]).i32(PANEL).emit("i32.div_u", self.panel_steps, "i32.mul", "i32.add").set(self.steps)
        self._order()
        with f.scratch("i32", 1) as (width,):
            f.emit(self.streams).i32(PANEL).emit("i32.mul").set(width)
            f.emit(p["cols"], width, "i32.add").i32(1).emit("i32.sub", width, "i32.div_u").set(self.per_stream)

    def _order(self) -> None:
        """Set the number of streams, and count the KiB that they read."""
        f, p, bits = self.f, self.p, self.panels.bits
        if bits == 32:
            f.set(self.streams, STREAMS)
            return
        f.set(self.streams, select(STREAMS, 1, order_has(IN_TURNS)))
        count_codes(f, p["cols"], p["k"], bits)

    def call(self, part: Function) -> None:
        f, k = self.f, self.p["k"]
        with f.scratch("i32", 2) as (most, panel):
            self._turn_k(most)
            f.i32(0).set(panel)
            with f.until(panel, self.per_stream):
                f.i32(0).set(self.k0)
                with f.loop() as again:  # once if k is 0
                    f.emit(k, self.k0, "i32.sub").set(self.k)
                    minimum(f, self.k, self.k, most)
                    self._turn(part, panel)
                    f.emit(self.k0, self.k, "i32.add").tee(self.k0).emit(k, "i32.lt_s").br_if(again)

    def _turn_k(self, to: int) -> None:
        """to = the number of k of a turn: whole blocks (in one stream, all of them), or part of the only block unless
        turns must end with blocks. Such parts are the same in each order, so that results do not depend on the
        order."""
        f, size, k = self.f, self.size, self.p["k"]
        f.i32(self.panels.turn_bytes // self.panels.bits).set(to)
        f.i32(int(self.panels.whole_blocks)).emit(size, k, "i32.lt_s", "i32.or")
        with f.if_():
            f.emit(k)
            f.emit(to, to, size, "i32.rem_u", "i32.sub", size, size, to, "i32.le_s", "select")
            f.emit(self.streams).i32(1).emit("i32.eq", "select").set(to)

    def _turn(self, part: Function, first: int) -> None:
        """Call the part function for k elements from k0 on, of panel `first` of each stream."""
        f, p = self.f, self.p
        with f.scratch("i32", len(TURN_ARGUMENTS)) as computed, f.scratch("i32", 2) as (panel, after):
            own = dict(zip(TURN_ARGUMENTS, computed, strict=True))
            self.row_bytes(f.emit(p["a"]), self.k0, self.size).emit("i32.add").set(own["a"])
            f.emit(p["flags"]).i32(FIRST).emit("i32.and", self.k0, "i32.eqz", "i32.mul")
            f.emit(p["flags"]).i32(LAST).emit("i32.and", self.k0, self.k, "i32.add", p["k"], "i32.ge_s", "i32.mul")
            f.emit("i32.or").set(own["flags"]).emit(first).set(panel)
            with f.loop() as again:
                f.emit(panel).i32(PANEL).emit("i32.mul").set(own["col"])
                f.emit(p["c"], own["col"]).i32(2).emit("i32.shl", "i32.add").set(own["c"])
                f.emit(p["cols"], own["col"], "i32.sub").set(own["cols"])
                f.emit(p["col"], own["col"], "i32.add").set(own["col"])
                self._codes(panel, self.k0).set(own["b"])
                f.emit(self.steps, panel, self.panel_steps, "i32.mul", "i32.add", self.k0, self.size, "i32.div_u")
                f.i32(self.panels.step_bytes).emit("i32.mul", "i32.add").set(own["steps"])
                f.emit(panel, self.per_stream, "i32.add").set(after)
                self._next(first, after, own["b"], own["next"])
                given = {**p, **own, "k": self.k, "size": self.size}
                f.emit(*[given[name] for name in self.panels.takes]).call(part)
                f.emit(after).set(panel)
                self._is_panel(panel).br_if(again)

    def _codes(self, panel: int, k: int) -> Function:
        """Push the address of a panel's codes, from this k on."""
        f, p = self.f, self.p
        return f.emit(p["b"], panel, p["ldb"], "i32.mul", "i32.add", k).i32(self.panels.bits).emit("i32.mul", "i32.add")

    def _next(self, first: int, after: int, now: int, to: int) -> None:
        """to = the address of the codes of the next turn: the same k of the panel `after`, or the next k in the first
        stream."""
        f = self.f
        with f.scratch("i32", 1) as (next_,):
            self._is_panel(after)
            with f.if_():
                self._codes(after, self.k0).set(to)
                f.otherwise()
                f.emit(self.k0, self.k, "i32.add").set(next_)
                self._codes(first, next_).emit(now, first).i32(1).emit("i32.add").set(next_)
                self._is_panel(next_).emit("select").set(to)

    def _is_panel(self, panel: int) -> Function:
        """Push whether the block has a panel of this number."""
        return self.f.emit(panel).i32(PANEL).emit("i32.mul", self.p["cols"], "i32.lt_s")


@contextmanager
def blocks_of_k(
    f: Function, p: dict[str, Any], layout: WeightCodes, code: int, k: int, left: int, step: int
) -> Iterator[None]:
    """Loop over the blocks of k of a part function. code: the address of a block's codes; k: how many are left; left:
    gets those of a block; step: bytes of a block. Blocks of half floats are long and prefetched inside."""
    with f.block() as done, f.loop() as again:
        f.emit(k).i32(0).emit("i32.le_s").br_if(done)
        minimum(f, left, k, p["size"])
        if layout.bits < 16:
            prefetch(f, p, layout, code, k, step)
        f.emit(k, p["size"], "i32.sub").set(k)
        yield
        f.add(p["steps"], layout.step_bytes).br(again)


def count_codes(f: Function, cols: I32, k: I32, bits: int) -> None:
    """Count the KiB of a block's codes."""
    read = pointer(CODES_READ)
    f.store(read, read.i32() + ((cols * k >> 10) * bits >> 3), name="i32.store")


def order_has(bit: int) -> I32:
    """The bit of PANEL_ORDER for these kernels."""
    return pointer(PANEL_ORDER).i32() & bit


def prefetch(f: Function, p: dict[str, Any], layout: WeightCodes, code: int, k: int, step: int) -> None:
    """Prefetch codes of the next turn: at each step of `step` bytes that enters another 512 bytes of a turn, load from
    eight cache lines at the same place in the next turn, which memory delivers together
    (docs/design/weight-bandwidth.md#prefetch). k: number left from `code` on; the bytes of one k in a panel (eight
    columns) equal the bits of a code."""
    with f.block() as done:
        f.emit(p["prefetches"], "i32.eqz").br_if(done)
        f.emit(code, p["b"], "i32.sub").i32(AHEAD - 1).emit("i32.and", step, "i32.ge_u").br_if(done)
        f.emit(k).i32(AHEAD // layout.bits).emit("i32.lt_s").br_if(done)
        with f.scratch("i32", 1) as (ahead,):
            f.emit(p["next"], code, p["b"], "i32.sub", "i32.add").set(ahead)
            for line in range(0, AHEAD, LINE):
                f.emit(ahead).mem("i32.load8_u", line).emit("drop")
