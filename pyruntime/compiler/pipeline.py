"""The passes of the compiler in their order, as one table. `user_passes` puts those of users at places in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyruntime.codegen.provider import Routine, RowLimits
from pyruntime.frontend.sequences import tensors_of
from pyruntime.frontend.trace_graph import TracedGraph
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.kernel import Block, Read, Tensor
from pyruntime.ir.symbol import Symbol
from pyruntime.passes.caches.growing_caches import grow_in_place
from pyruntime.passes.caches.scattered_caches import scatter_in_place
from pyruntime.passes.caches.stacked_caches import join_stacked
from pyruntime.passes.cleanup.dead_code import remove_dead
from pyruntime.passes.cleanup.used_symbols import mentioned
from pyruntime.passes.constants.byte_tables import tabulate
from pyruntime.passes.constants.constant_hoisting import hoist_constants, unpacks
from pyruntime.passes.constants.equal_constants import merge_equal
from pyruntime.passes.constants.gathered_constants import gather_codes
from pyruntime.passes.constants.operand_packing import pack
from pyruntime.passes.fusion.epilogues import absorb
from pyruntime.passes.fusion.map_fusion import fuse
from pyruntime.passes.fusion.row_fusion import fuse_rows
from pyruntime.passes.fusion.unit_axes import absorb_units
from pyruntime.passes.lowering.legalise import legalise
from pyruntime.passes.lowering.string_kernels import lower_strings
from pyruntime.passes.lowering.wide_halves import widen_halves
from pyruntime.passes.views.reshaped_views import read_repeated
from pyruntime.passes.views.shared_operands import share_operands
from pyruntime.passes.views.strided_operands import read_through

LEVELS = ("disabled", "basic", "extended", "layout", "all")


@dataclass(slots=True)
class Work:
    """What passes on kernels work on. main, init: what runs in each run, and once before the first; outputs: tensors
    that leave the program; routines, rows: what the providers can do; at_home: whether all work in linear
    memory."""

    traced: TracedGraph
    routines: Mapping[str, Routine]
    rows: RowLimits
    at_home: bool
    init: Block = field(default_factory=Block)

    @property
    def main(self) -> Block:
        return self.traced.block

    @property
    def outputs(self) -> list[Tensor]:
        return [t for v in self.traced.outputs.values() for t in tensors_of(v)]


@dataclass(frozen=True, slots=True)
class Pass:
    """One row. level: the optimisation level from which on it runs; run: takes a `Graph` and gives one, or works on
    `Work`; before, after: of a user's pass, the row it was placed at."""

    name: str
    level: str
    run: Callable[[Any], Any]
    on: str = "kernels"  # or "graph"
    before: str = ""
    after: str = ""

    @property
    def added(self) -> bool:
        return bool(self.before or self.after)


def _fuse_init(w: Work) -> None:
    fuse(w.init, [t for k in w.init.kernels for t in k.outputs])


def _fuse_rows(w: Work) -> None:
    fuse_rows(w.main, w.outputs, w.rows)


def _grow_in_place(w: Work) -> None:
    if w.at_home:
        join_stacked(w.traced)
        grow_in_place(w.traced, w.outputs)
        scatter_in_place(w.traced, w.outputs)


def _widen_halves(w: Work) -> None:
    if w.at_home:
        widen_halves(w.main, w.outputs)


def _read_repeated(w: Work) -> None:
    if not w.at_home:
        read_repeated(w.main)


def _share_operands(w: Work) -> None:
    if w.at_home:
        share_operands(w.main)


def _tabulate(w: Work) -> None:
    if w.at_home:  # on a GPU arithmetic costs less than a lookup
        tabulate(w.main, w.init)


def _remove_unread(w: Work) -> None:
    """Dead code in both blocks, and reads of values that nobody asks for."""
    while True:
        before = len(w.main.kernels)
        remove_dead(w.main, w.outputs, _asked(w))
        if len(w.main.kernels) == before:
            break
    used = [t for k in w.main.kernels for t in k.inputs]
    remove_dead(w.init, [*used, *w.outputs])


def _asked(w: Work) -> set[Symbol]:
    """The symbols that the program mentions; where nothing is read it does not matter which."""
    if not any(isinstance(k, Read) for k in all_kernels(w.main)):
        return set()
    names = mentioned(w.main)
    for t in w.outputs:
        names |= {s for d in t.shape for s in sh.symbols(d)}
    for guard, *_ in w.traced.guards:
        names |= sh.symbols(guard)
    return names


def _lowered(_: Any) -> None:
    """Between passes on the graph and passes on kernels: each operator's lowering records its kernels."""


PASSES = (
    Pass("lowering", "disabled", _lowered),  # frontend/trace_graph.py, of the nodes that outputs need
    Pass("dead_code", "disabled", lambda w: remove_dead(w.main, w.outputs)),
    Pass("growing_caches", "extended", _grow_in_place),
    Pass("shared_operands", "extended", _share_operands),
    Pass("string_kernels", "disabled", lambda w: lower_strings(w.main)),
    Pass("legalise", "disabled", lambda w: legalise(w.main, w.routines)),
    Pass("gathered_constants", "extended", lambda w: gather_codes(w.main, products=not w.at_home)),
    Pass("reshaped_views", "extended", _read_repeated),
    Pass("wide_halves", "extended", _widen_halves),
    Pass("strided_operands", "extended", lambda w: read_through(w.main, w.routines)),
    Pass("unpacked_weights", "disabled", lambda w: hoist_constants(w.main, w.init, unpacks)),
    Pass("constant_hoisting", "basic", lambda w: hoist_constants(w.main, w.init)),
    Pass("dead_code", "extended", lambda w: remove_dead(w.main, w.outputs)),
    Pass("unit_axes", "extended", lambda w: absorb_units(w.main, w.outputs)),
    Pass("epilogues", "extended", lambda w: absorb(w.main, w.routines, w.outputs)),
    Pass("init_fusion", "extended", _fuse_init),
    Pass("map_fusion", "extended", lambda w: fuse(w.main, w.outputs, w.routines)),
    Pass("dead_code", "extended", lambda w: remove_dead(w.main, w.outputs)),
    Pass("unit_axes", "extended", lambda w: absorb_units(w.main, w.outputs)),
    Pass("epilogues", "extended", lambda w: absorb(w.main, w.routines, w.outputs)),
    Pass("byte_tables", "extended", _tabulate),
    Pass("row_fusion", "extended", _fuse_rows),
    Pass("operand_packing", "extended", lambda w: pack(w.main, w.init, w.routines)),
    Pass("equal_constants", "extended", lambda w: merge_equal(w.init)),
    Pass("unread_values", "disabled", _remove_unread),
)
NEEDED = frozenset(p.name for p in PASSES if p.level == "disabled")  # without which there is no program

__all__ = ["LEVELS", "NEEDED", "PASSES", "Pass", "Work"]
