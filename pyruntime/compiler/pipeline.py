"""The passes of the compiler, in order, as one table. `user_passes` inserts the passes of users into it.

Each row states the facts that it needs, establishes and breaks. tests/test_passes.py derives from them that the order
is valid at every optimisation level, and checks each fact on kernels after each pass. A comment explains what the facts
do not: why one pass finds more work when it runs after another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pyruntime.codegen.provider import Routine, RowLimits
from pyruntime.frontend.sequences import tensors_of
from pyruntime.frontend.trace_graph import TracedGraph
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.kernel import Block, Loop, Read, Tensor
from pyruntime.ir.symbol import Symbol
from pyruntime.passes.caches.growing_caches import grow_in_place
from pyruntime.passes.caches.scattered_caches import scatter_in_place
from pyruntime.passes.caches.stacked_caches import join_stacked
from pyruntime.passes.cleanup.dead_code import remove_dead
from pyruntime.passes.cleanup.used_symbols import symbols_in
from pyruntime.passes.constants.byte_tables import tabulate
from pyruntime.passes.constants.constant_hoisting import computed_tables, hoist_constants, unpacks_bits
from pyruntime.passes.constants.equal_constants import merge_equal
from pyruntime.passes.constants.gathered_constants import dequantise_at_reads
from pyruntime.passes.constants.half_scales import made_halves, store_as_halves
from pyruntime.passes.constants.joined_scalars import join_scalars
from pyruntime.passes.constants.operand_packing import pack
from pyruntime.passes.fusion.epilogues import absorb
from pyruntime.passes.fusion.map_fusion import fuse, fuse_scalars
from pyruntime.passes.fusion.row_fusion import fuse_rows
from pyruntime.passes.fusion.unit_axes import absorb_units
from pyruntime.passes.lowering.legalise import legalise
from pyruntime.passes.lowering.rounded_halves import round_halves
from pyruntime.passes.lowering.string_kernels import lower_strings
from pyruntime.passes.lowering.subnormals import flush_subnormals, keep_subnormals
from pyruntime.passes.lowering.wide_halves import widen_halves
from pyruntime.passes.lowering.wide_sums import widen_sums
from pyruntime.passes.memory.recomputation import recompute
from pyruntime.passes.views.reshaped_views import read_repeated
from pyruntime.passes.views.shared_operands import share_operands
from pyruntime.passes.views.strided_operands import read_through


class Fact(Enum):
    """A property of the kernels on which passes rely. The value states it."""

    NO_STRINGS = "only Host kernels read or make string tensors"
    DENSE_OPERANDS = "no Call reads an operand through strides"
    NO_EPILOGUES = "no Call has an epilogue or an output order"
    CLAIMED_CALLS = "a routine of a provider claims every Call, leaving its epilogue aside"
    NO_DEAD_KERNELS = "something reads an output of every kernel in the main block"
    UNPACKED_ONCE = "only the init block unpacks constants whose elements share bytes"
    HOISTED_CONSTANTS = "every kernel of the main block depends on a feed, or only enlarges a constant"
    PACKED_OPERANDS = "constant operands have the layouts that their routines want"
    NO_UNUSED_READS = "the Program mentions a symbol of every Read"


@dataclass(slots=True)
class Work:
    """The kernels that passes work on, and the facts about the session that they use.

    main, init: the blocks that run in each run, and once before the first run
    outputs: the tensors that leave the Program, and the states that runs change
    routines, rows: the routines of the providers, and their limits of row fusion
    cpu_only: no provider of the session has a memory of its own, so that all kernels work in linear memory
    keeps_subnormals: whether subnormal numbers stay as they are
    scratch, products: see `CodeWriter`
    loops: how each loop runs, as a sentence, by label of its node
    """

    traced: TracedGraph
    routines: Mapping[str, Routine]
    rows: RowLimits
    cpu_only: bool
    keeps_subnormals: bool = False
    scratch: int = 0
    products: bool = False
    init: Block = field(default_factory=Block)
    loops: dict[str, str] = field(default_factory=dict)

    @property
    def main(self) -> Block:
        return self.traced.block

    @property
    def outputs(self) -> list[Tensor]:
        leaving = [t for v in self.traced.outputs.values() for t in tensors_of(v)]
        return leaving + [state for t in leaving for state in self.traced.updates.get(t.uid, ())]


def _everywhere(work: Work) -> bool:
    return True


def _cpu(work: Work) -> bool:
    return work.cpu_only


def _gpu(work: Work) -> bool:
    return not work.cpu_only


def _with_loops(work: Work) -> bool:
    return any(isinstance(k, Loop) for k in all_kernels(work.main))


@dataclass(frozen=True, slots=True)
class Pass:
    """One row of the table.

    level: the lowest optimisation level at which the pass runs
    run: takes a `Graph` and returns one, or changes `Work` in place
    on: "graph" or "kernels"
    applies: whether the pass runs for this work
    needs, establishes, breaks: facts that must hold before, hold afterwards, and may no longer hold
    before, after: the row before or after which a user's pass runs
    """

    name: str
    level: str
    run: Callable[[Any], Any]
    on: str = "kernels"
    applies: Callable[[Work], bool] = _everywhere
    needs: tuple[Fact, ...] = ()
    establishes: tuple[Fact, ...] = ()
    breaks: tuple[Fact, ...] = ()
    before: str = ""
    after: str = ""

    @property
    def by_user(self) -> bool:
        return bool(self.before or self.after)


def _grow_caches(w: Work) -> None:
    join_stacked(w.traced)
    grow_in_place(w.traced, w.outputs, at_once=not w.cpu_only)
    scatter_in_place(w.traced, w.outputs)


def _fuse(w: Work) -> None:
    stored = [*computed_tables(w.init), *([] if w.cpu_only else made_halves(w.init))]
    if not w.cpu_only:
        fuse_scalars(w.main)
    fuse(w.main, [*w.outputs, *stored], w.routines)


def _hoist_products(w: Work) -> None:
    from pyruntime.passes.loops.hoisted_products import hoist_products  # few models need it

    hoist_products(w.main, w.routines, sums=not w.cpu_only)


def _compile_loops(w: Work) -> None:
    from pyruntime.passes.loops.whole_loops import compile_loops  # few models need it

    w.loops |= compile_loops(w.main, w.routines, lanes=w.cpu_only, products=w.products and w.cpu_only)
    hoist_constants(w.main, w.init)  # packed matrices of loops
    remove_dead(w.main, w.outputs)


def _treat_subnormals(w: Work) -> None:
    if w.keeps_subnormals:
        keep_subnormals([w.main, w.init])
    else:
        flush_subnormals(w.main, w.init, w.outputs, on_gpu=not w.cpu_only)


def _recompute(w: Work) -> None:
    tracer = w.traced.tracer
    if tracer is not None and tracer.memory:
        recompute(w.main, w.outputs, tracer.memory, w.scratch, on_gpu=not w.cpu_only)


def _fuse_init(w: Work) -> None:
    fuse(w.init, [t for k in w.init.kernels for t in k.outputs])


def _remove_unread(w: Work) -> None:
    """Removes dead code from both blocks, and Reads whose symbols the Program does not mention."""
    while True:  # a removed Read may have been the only reader of a kernel that mentions a symbol
        before = len(w.main.kernels)
        remove_dead(w.main, w.outputs, mentioned_symbols(w))
        if len(w.main.kernels) == before:
            break
    used = [t for k in w.main.kernels for t in k.inputs]
    remove_dead(w.init, [*used, *w.outputs])


def mentioned_symbols(w: Work) -> set[Symbol]:
    """The symbols that kernels, outputs or guards mention; an empty set if no kernel is a Read, because then
    nothing uses the set."""
    if not any(isinstance(k, Read) for k in all_kernels(w.main)):
        return set()
    symbols = symbols_in(w.main)
    for t in w.outputs:
        symbols |= {s for d in t.shape for s in sh.symbols(d)}
    for guard, *_ in w.traced.guards:
        symbols |= sh.symbols(guard)
    return symbols


def _lowered(_: Any) -> None:
    """Does nothing: before this row, frontend/trace_graph.py turned the nodes that outputs need into kernels."""


F = Fact
_DEAD_CODE: dict[str, Any] = {
    "run": lambda w: remove_dead(w.main, w.outputs),
    "establishes": (F.NO_DEAD_KERNELS,),
}
_UNIT_AXES: dict[str, Any] = {
    "run": lambda w: absorb_units(w.main, w.outputs),
    "needs": (F.NO_STRINGS, F.NO_DEAD_KERNELS),
}
_EPILOGUES: dict[str, Any] = {
    "run": lambda w: absorb(w.main, w.routines, w.outputs),
    "needs": (F.NO_STRINGS, F.CLAIMED_CALLS, F.NO_DEAD_KERNELS),
    "breaks": (F.NO_EPILOGUES,),
}

PASSES = (
    Pass("lowering", "disabled", _lowered, establishes=(F.DENSE_OPERANDS, F.NO_EPILOGUES)),
    Pass("dead_code", "disabled", **_DEAD_CODE),
    # The two passes on attention match expressions as operators write them, so they run before any pass rewrites these.
    Pass(
        "growing_caches", "extended", _grow_caches,
        needs=(F.NO_DEAD_KERNELS,),  # a dead reader of a past would forbid growing it in place
        breaks=(F.NO_DEAD_KERNELS,),
    ),
    # After growing_caches: keys and values are then read from the buffer in which they grow.
    Pass(
        "shared_operands", "extended", lambda w: share_operands(w.main),
        needs=(F.DENSE_OPERANDS, F.NO_EPILOGUES), breaks=(F.NO_DEAD_KERNELS,),
    ),
    Pass("string_kernels", "disabled", lambda w: lower_strings(w.main), establishes=(F.NO_STRINGS,)),
    Pass(
        "legalise", "disabled", lambda w: legalise(w.main, w.routines),
        needs=(F.NO_STRINGS, F.DENSE_OPERANDS),  # a Call's definition reads dense operands
        establishes=(F.CLAIMED_CALLS,), breaks=(F.NO_DEAD_KERNELS,),
    ),
    # After legalise, because a product that no routine claims stays in its loop.
    Pass(
        "hoisted_products", "extended", _hoist_products, applies=_with_loops,
        needs=(F.NO_STRINGS, F.DENSE_OPERANDS, F.NO_EPILOGUES, F.CLAIMED_CALLS), breaks=(F.NO_DEAD_KERNELS,),
    ),
    # After legalise, which may turn products into Reduces. Before constants are hoisted, so that
    # dequantisation that is inlined here is not computed once and kept as float32.
    Pass(
        "gathered_constants", "extended", lambda w: dequantise_at_reads(w.main, products=not w.cpu_only),
        needs=(F.NO_STRINGS,), breaks=(F.NO_DEAD_KERNELS,),
    ),
    # After gathered_constants, which puts codes and scales into one expression.
    Pass(
        "half_scales", "extended", lambda w: store_as_halves(w.main), applies=_gpu,
        needs=(F.NO_STRINGS,), breaks=(F.NO_DEAD_KERNELS,),
    ),
    Pass(
        "reshaped_views", "extended", lambda w: read_repeated(w.main), applies=_gpu,
        needs=(F.NO_STRINGS,), breaks=(F.NO_DEAD_KERNELS,),
    ),
    # At the levels below, each result is stored, and a store rounds.
    Pass("rounded_halves", "extended", lambda w: round_halves(w.main), needs=(F.NO_STRINGS, F.DENSE_OPERANDS)),
    Pass(
        "wide_halves", "extended", lambda w: widen_halves(w.main, w.outputs), applies=_cpu,
        needs=(F.NO_STRINGS, F.DENSE_OPERANDS, F.CLAIMED_CALLS),  # it replaces operands, and would miss strided ones
        breaks=(F.NO_DEAD_KERNELS,),
    ),
    Pass(
        "wide_sums", "extended", lambda w: widen_sums(w.main, w.outputs), applies=_gpu,
        needs=(F.NO_STRINGS, F.DENSE_OPERANDS, F.CLAIMED_CALLS), breaks=(F.NO_DEAD_KERNELS,),
    ),
    Pass(
        "strided_operands", "extended", lambda w: read_through(w.main, w.routines),
        needs=(F.CLAIMED_CALLS,), breaks=(F.DENSE_OPERANDS, F.NO_DEAD_KERNELS),
    ),
    Pass(
        "unpacked_weights", "disabled", lambda w: hoist_constants(w.main, w.init, unpacks_bits),
        needs=(F.NO_STRINGS,), establishes=(F.UNPACKED_ONCE,),
    ),
    # After strided_operands: a transpose of a weight that a routine can read through strides is not materialised.
    Pass(
        "constant_hoisting", "basic", lambda w: hoist_constants(w.main, w.init),
        needs=(F.NO_STRINGS,), establishes=(F.HOISTED_CONSTANTS,),
    ),
    # After passes that recognise expressions, and before fusion puts them together.
    Pass("subnormals", "disabled", _treat_subnormals, needs=(F.NO_STRINGS, F.CLAIMED_CALLS)),
    Pass("dead_code", "extended", **_DEAD_CODE),
    # unit_axes removes reshapes between a kernel and its reader, and epilogues absorb maps before map_fusion inlines
    # these elsewhere. Both run again, because map_fusion leaves kernels with a single reader that had several.
    Pass("unit_axes", "extended", **_UNIT_AXES),
    Pass("epilogues", "extended", **_EPILOGUES),
    Pass("init_fusion", "extended", _fuse_init, needs=(F.HOISTED_CONSTANTS,)),
    Pass(
        "map_fusion", "extended", _fuse,
        needs=(F.NO_STRINGS, F.CLAIMED_CALLS, F.NO_DEAD_KERNELS), breaks=(F.NO_DEAD_KERNELS,),
    ),
    Pass("dead_code", "extended", **_DEAD_CODE),
    Pass("unit_axes", "extended", **_UNIT_AXES),
    Pass("epilogues", "extended", **_EPILOGUES),
    # After fusion, which leaves few kernels in a body, and before operands are packed for routines.
    Pass(
        "whole_loops", "extended", _compile_loops, applies=_with_loops,
        needs=(F.NO_STRINGS, F.NO_DEAD_KERNELS, F.HOISTED_CONSTANTS),
    ),
    # After fusion, when one expression contains all operations that depend on one eight-bit code. On a GPU arithmetic
    # costs less than a lookup.
    Pass(
        "byte_tables", "extended", lambda w: tabulate(w.main, w.init), applies=_cpu,
        needs=(F.NO_STRINGS, F.HOISTED_CONSTANTS),
    ),
    Pass(
        "row_fusion", "extended", lambda w: fuse_rows(w.main, w.outputs, w.rows),
        needs=(F.NO_STRINGS, F.NO_DEAD_KERNELS),
    ),
    # After all passes that put the expressions of kernels together.
    Pass(
        "joined_scalars", "extended", lambda w: join_scalars(w.main, w.init), applies=_gpu,
        needs=(F.NO_STRINGS, F.HOISTED_CONSTANTS), breaks=(F.NO_DEAD_KERNELS,),
    ),
    # After strided_operands and hoisting: the layout depends on the strides, and results of the init block are packed,
    # too.
    Pass(
        "operand_packing", "extended", lambda w: pack(w.main, w.init, w.routines),
        needs=(F.CLAIMED_CALLS, F.HOISTED_CONSTANTS), establishes=(F.PACKED_OPERANDS,),
    ),
    Pass("equal_constants", "extended", lambda w: merge_equal(w.init), needs=(F.PACKED_OPERANDS,)),
    # After all passes that decide which values are stored.
    Pass("recomputation", "disabled", _recompute, breaks=(F.NO_DEAD_KERNELS,)),
    Pass(
        "unread_values", "disabled", _remove_unread,
        establishes=(F.NO_DEAD_KERNELS, F.NO_UNUSED_READS),
    ),
)  # fmt: skip
REQUIRED = frozenset(p.name for p in PASSES if p.level == "disabled")  # a Program cannot be made without these passes
