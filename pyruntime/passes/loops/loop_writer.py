"""The procedure of all steps of a loop.

States live in the memory of the loop's results, values to stack in their place in the stack, and other values in
registers, or in scratch memory of the unit if another nest reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, I32, I64
from pyruntime.ir.expr import Expr, cast, const, dim, maximum, minimum
from pyruntime.ir.kernel import Kernel, Loop, Loops, Tensor, Var
from pyruntime.ir.rewriting import take_over
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.statements import nodes
from pyruntime.passes.loops.nest_writer import NestWriter
from pyruntime.passes.loops.nests import Nest
from pyruntime.passes.loops.procedure_writer import write_procedure
from pyruntime.passes.loops.unit import Unit

MOST_STEPS = (1 << 31) - 1  # kernels count in 32 bits


class LoopWriter:
    """Writes the procedure of a loop. Its limit is a dim, or a tensor if it stacks nothing. If it may end earlier, it
    stacks nothing."""

    def __init__(self, loop: Loop, unit: Unit) -> None:
        self.loop, self.unit, self.k = loop, unit, unit.k
        self.first: Expr | None = None  # the number of the first step, if not 0

    def kernels(self) -> list[Kernel]:
        """The kernels that replace the loop."""
        loop, k = self.loop, self.k
        made = Loops("loop", (), (), [])
        with k.parallel(self.unit.count) as number:
            nests = self._begin(number, loop.carried, loop.outputs)
            limit = self._limit()
            if loop.is_counted:
                with k.loop(limit, "steps") as step:
                    self._step(nests, step)
            else:
                start = loop.condition
                self._while(nests, limit, k.var(True if start is None else start.at(), BOOL))
        self._end(made, loop.outputs)
        take_over(made, loop)
        return [made]

    def _limit(self) -> Expr:
        """The number of steps at most."""
        if self.loop.limit is not None:
            return dim(sh.maximum(self.loop.limit, 0))
        assert self.loop.trip is not None
        return self.k.let(cast(maximum(minimum(self.loop.trip.at(), const(MOST_STEPS, I64)), const(0, I64)), I32))

    def _begin(self, number: Expr, states: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Nest | Loops]:
        """Begin a unit. states: their values before the first step; outputs: those after the last one, then stacks"""
        self.unit.decode(number)
        nests = self.unit.assign(outputs)
        self.unit.start(states)
        return nests

    def _step(self, nests: list[Nest | Loops], row: Expr) -> None:
        """row: the number of the step in this procedure"""
        self.unit.row = row
        self.unit.step = row if self.first is None else self.k.let(self.first + row)
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

    def _while(self, nests: list[Nest | Loops], limit: Expr, going: Var, most: AnyDim | None = None) -> Expr:
        """Steps until the condition fails. Each unit computes it from what it has itself: it is a scalar, so no axis of
        a state on which it depends is a column. Returns the number of steps. most: of them"""
        k, condition = self.k, self.unit.body.going
        done = k.var(0, I32)
        with k.while_((done.get < limit) & going.get, most):
            self._step(nests, k.let(done.get))
            if condition is not None:
                found = self.unit.registers.get(condition.uid)
                going.set(self.unit.places[condition.uid].at([]) if found is None else found)
            done.set(done.get + 1)
        return done.get

    def _end(self, made: Loops, outputs: Sequence[Tensor]) -> None:
        """Complete the procedure from the statements that have been written."""
        made.scratch, made.body = tuple(self.unit.scratch), self.k.body
        inside = {t.uid for t in (*outputs, *made.scratch)}
        read = {x.value.uid: x.value for x in nodes(made.body) if x.op == "at" and x.value.uid not in inside}
        made.args = tuple(read.values())
