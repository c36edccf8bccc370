"""Whole loops: a Loop whose body only computes becomes one procedure, so that a run has one call for all steps.

    parallel over the units: the outer columns (columns.py), and chunks of the innermost one
        states = initial values
        for each step
            for each nest of the body (nests.py): loops over the other axes, one of them a vector loop
            states = new states, unless a nest has stored them in place

Gradients need no rule: the backward pass is a Loop too, and this pass runs after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyruntime.codegen.provider import Routine
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.kernel import Block, Call, Kernel, Loop
from pyruntime.passes.loops.bodies import StepByStep, body_of
from pyruntime.passes.loops.loop_writer import MOST_STEPS, LoopWriter
from pyruntime.passes.loops.turn_writer import TurnWriter, turn_length
from pyruntime.passes.loops.unit import Unit

MOST_OPEN_STEPS = 1 << 16  # of a loop in a body that may end before its limit, which nothing stops

MOST_WORK = 1 << 16  # iterations of a procedure in the body, which one thread or workgroup runs in each step

WHOLE = "written as one procedure"
TURNS = "written as one procedure, which runs in turns"


def compile_loops(
    block: Block, routines: Mapping[str, Routine], lanes: bool, products: bool = False, is_inner: bool = False
) -> dict[str, str]:  # fmt: skip
    """Replace loops in this block and its inner blocks, inner ones first. Returns for each loop's node how it runs, as
    a sentence. lanes: units are chunks of vectors, as CPUs need; otherwise each column is a unit. products: see
    `CodeWriter`. is_inner: loops of this block have to fit into the procedure of a loop around them"""
    kernels: list[Kernel] = []
    found: dict[str, str] = {}
    for kernel in block.kernels:
        inner = [(b, b.kernels) for b in _blocks(kernel)]
        for b in kernel.blocks:
            found |= compile_loops(b, routines, lanes, products, is_inner or isinstance(kernel, Loop))
        if not isinstance(kernel, Loop):
            kernels.append(kernel)
            continue
        try:
            _require_own(kernel.body, routines)
            made = _procedure(kernel, lanes, products, is_inner)
            kernels += made
            found[kernel.node] = TURNS if any(isinstance(k, Loop) for k in made) else WHOLE
        except StepByStep as reason:
            kernels.append(kernel)
            found[kernel.node] = f"runs step by step: {reason}"
            if not is_inner:
                _restore(inner)
                found |= compile_loops(kernel.body, routines, lanes, products)
    block.kernels = kernels
    return found


def _blocks(kernel: Kernel) -> Iterator[Block]:
    for block in kernel.blocks:
        yield block
        for k in block.kernels:
            yield from _blocks(k)


def _restore(blocks: Sequence[tuple[Block, list[Kernel]]]) -> None:
    """Give blocks the kernels back that they had."""
    for block, kernels in blocks:
        block.kernels = kernels
        for k in kernels:
            for n, t in enumerate(k.outputs):
                t.kernel, t.index = k, n


def _require_own(body: Block, routines: Mapping[str, Routine]) -> None:
    """Errors: StepByStep if a provider on arrays runs a call of the body"""
    for k in all_kernels(body):
        if isinstance(k, Call) and (name := routines[k.routine].taker(k)):
            raise StepByStep(f'its body has a call that the provider "{name}" runs')


def _procedure(loop: Loop, lanes: bool, products: bool, is_inner: bool) -> list[Kernel]:
    """The kernels that replace a loop. Errors: StepByStep"""
    if loop.enters or any(n < len(loop.carried) or axis for n, axis, _ in loop.binds):
        raise StepByStep("shapes depend on the step")
    if is_inner:
        _require_one_call(loop)
    may_repeat = lanes and not is_inner
    unit = Unit(loop, body_of(loop, MOST_WORK, may_repeat, products), lanes)
    is_one = is_inner or loop.is_counted and loop.limit is not None and not _is_long(loop)
    writer = LoopWriter(loop, unit) if is_one else TurnWriter(loop, unit, turn_length(unit))
    made = writer.kernels()
    return [*unit.packed.values(), *made]


def _is_long(loop: Loop) -> bool:
    """Whether kernels cannot count the steps."""
    return isinstance(loop.limit, int) and loop.limit > MOST_STEPS


def _require_one_call(loop: Loop) -> None:
    """Errors: StepByStep if a loop inside of another one needs turns: it stacks values and may end before its limit, or
    it may have too many steps."""
    is_counted = loop.is_counted and (loop.trip is not None or loop.limit is not None)
    is_known = is_counted or loop.limit is not None and sh.estimate(loop.limit) <= MOST_OPEN_STEPS
    if loop.binds or not is_known or _is_long(loop):
        raise StepByStep("the number of its steps is not known before it runs")
