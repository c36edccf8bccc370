"""Whole loops: a Loop whose body only computes becomes one procedure, so that a run has one call for all steps.

    parallel over the units: the outer columns (columns.py), and chunks of the innermost one
        states = initial values
        for each step
            for each nest of the body (nests.py): loops over the other axes, one of them a vector loop
            states = new states, unless a nest has stored them in place

States live in the memory of the loop's results, values to stack in their place in the stack, and other values in
registers, or in scratch memory of the unit if another nest reads them. Gradients need no rule: the backward pass is a
Loop too, and this pass runs after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from pyruntime.codegen.provider import Routine
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.dtype import BOOL, I32, I64
from pyruntime.ir.expr import Expr, cast, dim, index
from pyruntime.ir.kernel import Block, Call, Kernel, Loop, Loops, Map, Read, Tensor
from pyruntime.ir.rewriting import take_over
from pyruntime.ir.statements import nodes
from pyruntime.passes.loops.bodies import StepByStep, body_of
from pyruntime.passes.loops.nest_writer import NestWriter
from pyruntime.passes.loops.nests import Nest
from pyruntime.passes.loops.procedure_writer import write_procedure
from pyruntime.passes.loops.unit import Unit

MOST_STEPS = (1 << 31) - 1  # kernels count in 32 bits
MOST_OPEN_STEPS = 1 << 16  # of a loop that may end earlier, which is one call that nothing stops
MOST_BYTES = 256 << 20  # stacks of such a loop, which have room for all steps

# Iterations of a procedure in the body, which one thread runs in each step instead of several, or one invocation
MOST_WORK, MOST_GPU_WORK = 1 << 16, 1 << 10

WHOLE = "written as one procedure"


def compile_loops(block: Block, routines: Mapping[str, Routine], lanes: bool) -> dict[str, str]:
    """Replace loops in this block and its inner blocks, inner ones first. Returns for each loop's node how it runs, as
    a sentence. lanes: units are chunks of vectors, as CPUs need; otherwise each column is a unit"""
    kernels: list[Kernel] = []
    found: dict[str, str] = {}
    for kernel in block.kernels:
        for inner in kernel.blocks:
            found |= compile_loops(inner, routines, lanes)
        if not isinstance(kernel, Loop):
            kernels.append(kernel)
            continue
        try:
            _require_own(kernel.body, routines)
            kernels += _procedure(kernel, lanes)
            found[kernel.node] = WHOLE
        except StepByStep as reason:
            kernels.append(kernel)
            found[kernel.node] = f"runs step by step: {reason}"
    block.kernels = kernels
    return found


def _require_own(body: Block, routines: Mapping[str, Routine]) -> None:
    """Errors: StepByStep if a provider on arrays runs a call of the body"""
    for k in all_kernels(body):
        if isinstance(k, Call) and (name := routines[k.routine].taker(k)):
            raise StepByStep(f'its body has a call that the provider "{name}" runs')


def _procedure(loop: Loop, lanes: bool) -> list[Kernel]:
    """The kernels that replace a loop. Errors: StepByStep"""
    _require_limit(loop)
    writer = _Writer(loop, Unit(loop, body_of(loop, MOST_WORK if lanes else MOST_GPU_WORK), lanes))
    made = writer.kernels()
    return [*writer.unit.packed.values(), *made]


def _require_limit(loop: Loop) -> None:
    """Errors: StepByStep if shapes change, or the number of steps is neither a dim nor has a limit for which there is
    room."""
    stacks = loop.outputs[len(loop.carried) :]
    if loop.enters or any(n < len(loop.carried) or axis for n, axis, _ in loop.binds):
        raise StepByStep("shapes depend on the step")
    if loop.limit is None:
        raise StepByStep("the number of its steps is not known before it runs")
    if isinstance(loop.limit, int) and loop.limit > MOST_STEPS:
        raise StepByStep(f"it has more than {MOST_STEPS} steps")
    if loop.is_counted:
        return
    size = sum(sh.estimate(sh.size((loop.limit, *t.shape[1:]))) * t.dtype.size for t in stacks)
    if sh.estimate(loop.limit) > MOST_OPEN_STEPS or size > MOST_BYTES:
        raise StepByStep("it may end before its limit, and room for all its steps would be too large")


class _Writer:
    """Writes the procedure of a loop."""

    def __init__(self, loop: Loop, unit: Unit) -> None:
        self.loop, self.unit, self.k = loop, unit, unit.k
        assert loop.limit is not None
        self.limit = sh.maximum(loop.limit, 0)

    def kernels(self) -> list[Kernel]:
        """The procedure. If the loop may end before its limit, also a Read of the number of steps, and views of the
        parts of the stacks that have values."""
        loop, states = self.loop, len(self.unit.states)
        made = Loops("loop", (), (), [])
        if loop.is_counted and not loop.binds:
            self._write(made, loop.outputs)
            take_over(made, loop)
            return [made]
        scanned = loop.outputs[states:]
        stacks = [Tensor((self.limit, *t.shape[1:]), t.dtype, made, states + n) for n, t in enumerate(scanned)]
        done = Tensor((max(len(loop.binds), 1),), I64, made, len(loop.outputs))
        outputs = (*loop.outputs[:states], *stacks, done)
        self._write(made, outputs)
        made.replaces(loop, outputs)
        for t in outputs:
            t.kernel = made
        out: list[Kernel] = [made]
        if loop.binds:
            out.append(Read(done, tuple(symbol for _, _, symbol in loop.binds)))
            out[-1].replaces(loop, ())
        for t, stack in zip(scanned, stacks, strict=True):
            view = Map(stack.at(*[index(n) for n in range(t.rank)]))
            view.replaces(loop, (t,))
            t.kernel = view
            out.append(view)
        return out

    def _write(self, made: Loops, outputs: tuple[Tensor, ...]) -> None:
        k, unit = self.k, self.unit
        with k.parallel(unit.count) as number:
            unit.decode(number)
            nests = unit.assign(outputs)
            unit.start()
            if self.loop.is_counted:
                with k.loop(dim(self.limit), "steps") as step:
                    self._step(nests, step)
            else:
                self._while(nests)
            if len(outputs) > len(self.loop.outputs):
                self._store_count(number, outputs[-1])
        made.scratch, made.body = tuple(unit.scratch), k.body
        inside = {t.uid for t in (*outputs, *unit.scratch)}
        read = {x.value.uid: x.value for x in nodes(k.body) if x.op == "at" and x.value.uid not in inside}
        made.args = tuple(read.values())

    def _step(self, nests: list[Nest | Loops], step: Expr) -> None:
        self.unit.step = step
        for nest in nests:
            first = nest if isinstance(nest, Loops) else nest.members[0]
            with ExitStack() as stack:
                for condition, value in self.unit.body.branches.get(first.out.uid, ()):
                    holds = self.unit.expression(condition.at(), [], self.unit.register)
                    stack.enter_context(self.k.when(holds if value else ~holds))
                if isinstance(nest, Loops):
                    write_procedure(self.unit, nest)
                else:
                    NestWriter(self.unit, nest).write()
        self.unit.end_step()

    def _while(self, nests: list[Nest | Loops]) -> None:
        """Steps until the condition fails. Each unit computes it from what it has itself: it is a scalar, so no axis of
        a state on which it depends is a column."""
        k, start, condition = self.k, self.loop.condition, self.unit.body.going
        assert condition is not None
        self.done = k.var(0, I32)
        going = k.var(True if start is None else start.at(*[0] * start.rank), BOOL)
        with k.while_((self.done.get < dim(self.limit)) & going.get):
            self._step(nests, k.let(self.done.get))
            found = self.unit.registers.get(condition.uid)
            going.set(self.unit.places[condition.uid].at([]) if found is None else found)
            self.done.set(self.done.get + 1)

    def _store_count(self, number: Expr, done: Tensor) -> None:
        """The first unit stores the number of steps."""
        k = self.k
        with k.when(number < 1):
            for place in range(done.shape[0]):
                steps = dim(self.limit) if self.loop.is_counted else self.done.get
                k.store(done, (place,), cast(steps, I64))
