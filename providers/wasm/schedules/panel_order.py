"""The order in which GEMV kernels (one or two rows of A) read the panels of B.

Panels are read one after the other, or in turns: a panel of each third of the columns, a KiB or two at a time.
Processors prefetch within a page of 4 KiB, so each page may begin with a stall; the pages of three streams begin
together (docs/design/weight-bandwidth.md#three-streams). Float32 is read in turns, except natively, where memories
consist of huge pages. Quantised weights cost more computation, and turns are slower on processors that prefetch
further, so executors time runs to choose an order (docs/design/weight-bandwidth.md#read-order-trial) and write it to
PANEL_ORDER. Kernels add the KiB that they read to CODES_READ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyruntime.codegen.linear_memory import CODES_READ, IN_TURNS, PANEL_ORDER, PREFETCH

from ..printer.assembler import Function, Module
from .arguments import minimum
from .register_tile import BLOCK, FIRST, LAST, PANEL, block_function
from .weight_codes import FewBits

FEW = 2  # rows
STREAMS, TURN = 3, 1024  # bytes of codes in a turn
SUMMED = 128  # k of half floats, 2 KiB, that are summed before they are added to what C has
LINE, ASKED = 64, 512  # bytes of a cache line, and of what is asked for together
PART = (*BLOCK, "steps", "size", "then")
MOVED = ("a", "b", "c", "cols", "flags", "col", "steps", "then")  # of these, what a turn has of its own


@dataclass(frozen=True, slots=True)
class Lying:
    """How elements lie in panels: bits of one; bytes of a block's steps; whether a row has records of whole blocks;
    k of a block that has no steps; bytes of a turn. takes: the parameters of part functions."""

    bits: int
    steps: int = 0
    whole: bool = False
    block: int = 0
    turn: int = TURN
    takes: tuple[str, ...] = PART

    @staticmethod
    def of(few: FewBits) -> Lying:
        return Lying(few.bits, few.steps, few.digits > 0, SUMMED if few.bits == 16 else 0)


RowBytes = Callable[[Function, int, int], Function]  # push the bytes of so many k of a row; the k of a block


def float_bytes(f: Function, k: int, _: int) -> Function:
    """RowBytes of rows of float32."""
    return f.emit(k).i32(2).emit("i32.shl")


def part_function(module: Module, name: str) -> tuple[Function, dict[str, int]]:
    """A new function like a block function, but of the first panel only, and its parameters by name. steps: those of
    its first block; size: the k of a block; then: the address of the codes that the next turn has, of the last its
    own; asks, a local: whether they are asked for ahead."""
    f = module.function(name, ["i32"] * len(PART), export=False)
    asks = f.local("i32")
    has(f, PREFETCH).set(asks)
    return f, {**dict(zip(PART, f.params, strict=True)), "asks": asks}


def in_streams(
    module: Module, key: tuple[Any, ...], lying: Lying, words: tuple[int, int] | None, row_bytes: RowBytes,
    part: Callable[[int], Function],
) -> Function:  # fmt: skip
    """The block function whose key begins with its name, by part functions of one row, or of FEW of which some may lie
    beyond.

    words: of the argument block, the steps and how many k one has; None without steps
    """

    def make() -> Function:
        parts = [part(1), part(FEW)]
        f, p = block_function(module, key[0])
        turns = _Turns(f, p, lying, words, row_bytes)
        f.emit(p["rows"]).i32(1).emit("i32.eq")
        with f.if_():
            turns.call(parts[0])
            f.otherwise()
            turns.call(parts[1])
        return f

    return module.once(key, make)


class _Turns:
    """Calls of a part function from within a block function over panels."""

    def __init__(
        self, f: Function, p: dict[str, int], lying: Lying, words: tuple[int, int] | None, row_bytes: RowBytes
    ) -> None:
        self.f, self.p, self.lying, self.row_bytes = f, p, lying, row_bytes
        self.streams = f.local("i32")
        self.size, self.steps, self.panel_steps, self.third, self.k0, self.k = f.locals("i32", 6)
        if words is None:
            f.emit(p["k"]).i32(1).emit("i32.or").set(self.size)  # k may be 0
        else:
            (f.i32(lying.block) if lying.block else f.emit(p["args"]).mem("i32.load", 4 * words[1])).set(self.size)
            f.emit(p["k"], self.size, "i32.add").i32(1).emit("i32.sub", self.size, "i32.div_u").i32(lying.steps)
            f.emit("i32.mul").set(self.panel_steps)
            f.emit(p["args"]).mem("i32.load", 4 * words[0])
            f.emit(p["col"]).i32(PANEL).emit("i32.div_u", self.panel_steps, "i32.mul", "i32.add").set(self.steps)
        self._order()
        with f.scratch("i32", 1) as (width,):
            f.emit(self.streams).i32(PANEL).emit("i32.mul").set(width)
            f.emit(p["cols"], width, "i32.add").i32(1).emit("i32.sub", width, "i32.div_u").set(self.third)

    def _order(self) -> None:
        """How many streams, and how much they read."""
        f, p, bits = self.f, self.p, self.lying.bits
        f.i32(STREAMS)
        if bits == 32:
            f.set(self.streams)
            return
        has(f.i32(1), IN_TURNS).emit("select").set(self.streams)
        f.i32(CODES_READ).i32(CODES_READ).mem("i32.load").emit(p["cols"], p["k"], "i32.mul").i32(10).emit("i32.shr_u")
        f.i32(bits).emit("i32.mul").i32(3).emit("i32.shr_u", "i32.add").mem("i32.store")

    def call(self, part: Function) -> None:
        f, k = self.f, self.p["k"]
        with f.scratch("i32", 2) as (most, panel):
            self._most(most)
            f.i32(0).set(panel)
            with f.until(panel, self.third):
                f.i32(0).set(self.k0)
                with f.loop() as again:  # once where there is no k
                    f.emit(k, self.k0, "i32.sub").set(self.k)
                    minimum(f, self.k, self.k, most)
                    self._turn(part, panel)
                    f.emit(self.k0, self.k, "i32.add").tee(self.k0).emit(k, "i32.lt_s").br_if(again)

    def _most(self, to: int) -> None:
        """The k of a turn: whole blocks, which may be all in one stream, or a part of the only one unless a row's
        record is of the whole. Such parts are the same in each order: results do not tell which it was."""
        f, size, k = self.f, self.size, self.p["k"]
        f.i32(self.lying.turn // self.lying.bits).set(to)
        f.i32(int(self.lying.whole)).emit(size, k, "i32.lt_s", "i32.or")
        with f.if_():
            f.emit(k)
            f.emit(to, to, size, "i32.rem_u", "i32.sub", size, size, to, "i32.le_s", "select")
            f.emit(self.streams).i32(1).emit("i32.eq", "select").set(to)

    def _turn(self, part: Function, first: int) -> None:
        """So many k from k0 on of this panel of each third."""
        f, p = self.f, self.p
        with f.scratch("i32", len(MOVED)) as moved, f.scratch("i32", 2) as (panel, after):
            own = dict(zip(MOVED, moved, strict=True))
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
                f.i32(self.lying.steps).emit("i32.mul", "i32.add").set(own["steps"])
                f.emit(panel, self.third, "i32.add").set(after)
                self._then(first, after, own["b"], own["then"])
                given = {**p, **own, "k": self.k, "size": self.size}
                f.emit(*[given[name] for name in self.lying.takes]).call(part)
                f.emit(after).set(panel)
                self._within(panel).br_if(again)

    def _codes(self, panel: int, k: int) -> Function:
        """Push the address of the codes of a panel from this k on."""
        f, p = self.f, self.p
        return f.emit(p["b"], panel, p["ldb"], "i32.mul", "i32.add", k).i32(self.lying.bits).emit("i32.mul", "i32.add")

    def _then(self, first: int, after: int, now: int, to: int) -> None:
        """Where the next turn begins: the same k of the panel `after`, or what is next of the first third."""
        f = self.f
        with f.scratch("i32", 1) as (next_,):
            self._within(after)
            with f.if_():
                self._codes(after, self.k0).set(to)
                f.otherwise()
                f.emit(self.k0, self.k, "i32.add").set(next_)
                self._codes(first, next_).emit(now, first).i32(1).emit("i32.add").set(next_)
                self._within(next_).emit("select").set(to)

    def _within(self, panel: int) -> Function:
        """Push whether there is such a panel."""
        return self.f.emit(panel).i32(PANEL).emit("i32.mul", self.p["cols"], "i32.lt_s")


def has(f: Function, bit: int) -> Function:
    """Push whether the order has this bit, which is not 0 then."""
    return f.i32(PANEL_ORDER).mem("i32.load").i32(bit).emit("i32.and")


def ask_ahead(f: Function, p: dict[str, int], few: FewBits, code: int, k: int, step: int) -> None:
    """At each step of so many bytes that enters another 512 of a turn, a load from each line at the same place in the
    next: eight lines come together (docs/design/weight-bandwidth.md#prefetch). k: how many are left from `code` on; a k
    has as many bytes in a
    panel as a code has bits."""
    with f.block() as done:
        f.emit(p["asks"], "i32.eqz").br_if(done)
        f.emit(code, p["b"], "i32.sub").i32(ASKED - 1).emit("i32.and", step, "i32.ge_u").br_if(done)
        f.emit(k).i32(ASKED // few.bits).emit("i32.lt_s").br_if(done)
        with f.scratch("i32", 1) as (ahead,):
            f.emit(p["then"], code, p["b"], "i32.sub", "i32.add").set(ahead)
            for line in range(0, ASKED, LINE):
                f.emit(ahead).mem("i32.load8_u", line).emit("drop")


__all__ = ["FEW", "Lying", "ask_ahead", "float_bytes", "in_streams", "part_function"]
