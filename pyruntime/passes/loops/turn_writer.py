"""Loops whose number of steps is known only when they end, as a Loop of turns.

    Loop: while the condition holds                   the executor runs it
        procedure: up to `length` steps               from the states of the turn before, while the condition holds
    stacks: without the rows that no step has made

A turn takes about a millisecond. So a run can be stopped between turns, no dispatch exceeds the time limit of a driver,
and stacks take no memory for steps that do not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, I32, I64, U64
from pyruntime.ir.expr import Expr, binary, cast, const, dim, index, minimum, rem
from pyruntime.ir.kernel import (
    Block,
    For,
    Kernel,
    Leaf,
    Loop,
    Loops,
    Map,
    Read,
    Reduce,
    Stmt,
    Store,
    Tensor,
    When,
    While,
)
from pyruntime.ir.shape import AnyDim, Dim
from pyruntime.ir.statements import rebuild, statements
from pyruntime.ir.symbol import VALUE, Symbol
from pyruntime.passes.loops.bodies import Member, StepByStep, extents, work_of
from pyruntime.passes.loops.loop_writer import MOST_STEPS, LoopWriter
from pyruntime.passes.loops.nests import Nest
from pyruntime.passes.loops.unit import GROUP, Unit

# Iterations of a turn's loops in all units, those of maps as MAP: on a CPU, and on a GPU, which may be software; and in
# one invocation of a GPU, where each takes up to a microsecond
WORK, GPU_WORK, MAP, INVOCATION = 1 << 23, 1 << 21, 4, 1 << 15
BYTES, ROWS = 1 << 16, 16  # of the rows that a turn stacks: so many bytes, or so many steps if these are more


def turn_length(unit: Unit) -> AnyDim:
    """The number of steps of a turn."""
    members = unit.body.members
    rows = [sh.estimate(sh.size(t.shape)) * t.dtype.size for t in unit.body.results[len(unit.states) :]]
    most = max(int(BYTES / max([*rows, 1])), ROWS)
    try:
        work = sum([_work(m) for m in members], MAP * (len(members) + 1))
        if unit.lanes:
            return sh.clamp(sh.floordiv(WORK, work), 1, most)
        invocations = unit.count * (GROUP if unit.is_group else 1)
        own = sum([_own_work(m, invocations) for m in members], 1)
        return sh.clamp(sh.minimum(sh.floordiv(GPU_WORK, work), sh.floordiv(INVOCATION, own)), 1, most)
    except sh.Undecided:  # more factors than a dim may have
        return 1


def _work(m: Member) -> AnyDim:
    if isinstance(m, Loops):
        return MAP * int(work_of(m))
    return sh.size(extents(m)) if isinstance(m, Reduce) else MAP * sh.size(extents(m))


def _own_work(m: Member, invocations: AnyDim) -> AnyDim:
    """The iterations of one invocation, which computes a share of the elements, or the same ones as all others."""
    if isinstance(m, Loops):
        return int(work_of(m))
    sums = m.extents if isinstance(m, Reduce) else ()
    return sh.ceildiv(sh.size(m.out.shape), sh.maximum(invocations, 1)) * sh.size(sums)


class TurnWriter(LoopWriter):
    """Writes the turns of a loop, or one call if its limit is a number of at most `length` steps.

    length: steps of a turn
    """

    def __init__(self, loop: Loop, unit: Unit, length: AnyDim) -> None:
        super().__init__(loop, unit)
        self.length = sh.minimum(length, loop.limit) if isinstance(loop.limit, int) else length
        self.is_one = self.length == loop.limit
        self.number, _, *self.states = loop.body.inputs
        # On a GPU numbers of more than 32 bits stay on the CPU, and their copy is an error.
        self.is_long = (
            unit.lanes and not isinstance(loop.limit, Dim) and (loop.limit is None or loop.limit > MOST_STEPS)
        )
        last = self.number.at() * self._wide(self.length) + self._wide(self.length - 1)
        self.last = Map(last).making((), I64, loop.node)

    @staticmethod
    def _wide(d: AnyDim) -> Expr:
        return cast(dim(d), I64)

    def kernels(self) -> list[Kernel]:
        """The turns, a Read of the number of steps, and views of the rows that have values."""
        loop, states, length = self.loop, len(self.states), dim(self.length)
        if self.is_one:
            start = const(True, BOOL) if loop.condition is None else loop.condition.at()
            made: list[Kernel] = [self._turn(loop.carried, loop.outputs[:states], length, start)]
            count, *stacks = made[0].outputs[1 + states :]
        else:
            made = self._turns()
            count, *stacks = made[-1].outputs[states:]
        for n, t in enumerate(made[-1].outputs):
            t.kernel, t.index = made[-1], n
        if loop.binds:
            made.append(Read(count, tuple([symbol for _, _, symbol in loop.binds])))
            made[-1].replaces(loop, ())
        for t, stack in zip(loop.outputs[states:], stacks, strict=True):
            first = [index(0)] if self.is_one else [index(0) / length, rem(index(0), length)]
            view = Map(stack.at(*first, *[index(n) for n in range(1, t.rank)]))
            view.replaces(loop, (t,))
            t.kernel = view
            made.append(view)
        return made

    def _turns(self) -> list[Kernel]:
        """The Loop of turns, which stacks `length` rows in each turn. One more state counts the steps; it has an
        element for each dim that depends on their number."""
        loop, node, length = self.loop, self.loop.node, self._wide(self.length)
        before = [Map(const(0, I64)).making((len(loop.binds),), I64, node)]
        inside: list[Kernel] = [self.last]
        limit, trip = dim(self.length), None
        if loop.trip is not None:
            most = loop.trip.at()
            more = cast(binary("lt", const(0, I64), rem(most, length)), I64)
            before.append(Map(most / length + more).making((), I64, node))
            left = minimum(most - self.number.at() * length, length)
            inside.append(Map(cast(left, I32)).making((), I32, node))
            trip, limit = before[1].out, inside[1].out.at()
        states = [Tensor(t.shape, t.dtype, t.kernel) for t in self.states]
        turn = self._turn(self.states, states, limit, const(True, BOOL))
        for n, t in enumerate(turn.outputs):
            t.kernel, t.index = turn, n
        count = Leaf("block").making((len(loop.binds),), I64).out  # nothing reads it
        body = Block((*loop.body.inputs, count), [*inside, turn], turn.outputs)
        outer = Loop(trip, loop.condition, (*loop.carried, before[0].out), body)
        stacks: list[Tensor] = []
        if rows := turn.outputs[2 + len(states) :]:
            turns = Symbol(VALUE, place=(*loop.binds[0][2].place, 0))  # unique, as theirs are
            outer.binds = ((len(states) + 1, 0, turns),)
            stacks = [Tensor((sh.dim_of(turns), *t.shape), t.dtype, outer) for t in rows]
        outer.replaces(loop, (*loop.outputs[: len(states)], Tensor(count.shape, I64, outer), *stacks))
        return [*before, outer]

    def _turn(self, before: Sequence[Tensor], after: Sequence[Tensor], limit: Expr, start: Expr) -> Loops:
        """The procedure of a turn. Its results: the condition, states, the number of steps so far, rows to stack.
        before, after: the states; limit: its number of steps at most; start: the condition before it"""
        loop, k = self.loop, self.k
        made = Loops("loop", (), (), [])
        going, count = Tensor((), BOOL, made), Tensor((len(loop.binds),), I64, made)
        rows = [Tensor((self.length, *t.shape[1:]), t.dtype, made) for t in loop.outputs[len(self.states) :]]
        units = self.unit.count
        with k.parallel(sh.maximum(units, 1)) as number:  # one computes the condition, also if there are no columns
            if not self.is_one:
                self.first = k.let(cast(self.last.out.at(), I32) - dim(self.length - 1))
            nests = self._begin(number, before, [*after, *rows])
            holds = k.var(start, BOOL)
            done = self._while(nests, limit, holds, self.length)
            with k.when(number < 1):
                k.store(going, (), holds.get)
                for place in range(len(loop.binds)):
                    k.store(count, (place,), cast(done if self.first is None else self.first + done, I64))
                for t in rows:
                    if t.dtype in (I64, U64) and not self.unit.lanes:
                        self._clear(t, done)
        made.replaces(loop, (going, *after, count, *rows))
        self._end(made, made.outputs)
        if sh.interval(units)[0] < 1:
            made.body = [rebuild(s, lambda e: e, partial(self._guarded, dim(units) > 0)) for s in made.body]
        return made

    def _clear(self, stack: Tensor, first: Expr) -> None:
        """Write zeros to the rows that no step has made: a copy to the GPU refuses numbers of more than 32 bits."""
        with ExitStack() as loops:
            length = dim(stack.shape[0])
            row = first + loops.enter_context(self.k.loop(minimum(length - first, length)))
            at = [loops.enter_context(self.k.loop(dim(d))) for d in stack.shape[1:]]
            self.k.store(stack, (row, *at), const(0, stack.dtype))

    def _guarded(self, present: Expr, body: list[Stmt]) -> list[Stmt]:
        """The statements. Those that write values of columns need columns to be present.

        Errors: StepByStep for a loop over vectors that writes other values, too"""
        out: list[Stmt] = []
        for s in body:
            of_columns = {self._has_columns(x.target) for x in statements([s]) if isinstance(x, Store)}
            if of_columns == {True} and not isinstance(s, (While, When)):
                out.append(When(present, [s], []))
            elif isinstance(s, For) and s.kind == "vector" and True in of_columns:
                raise StepByStep("values that may be empty are computed with others")
            else:
                out.append(rebuild(s, lambda e: e, partial(self._guarded, present)))
        return out

    def _has_columns(self, t: Tensor) -> bool:
        """Whether it is empty if there are no columns, or memory of a unit for such values."""
        return t.uid in self.unit.of_columns or sh.interval(sh.size(t.shape))[0] < 1

    def _step(self, nests: list[Nest | Loops], row: Expr) -> None:
        if self.is_long:
            self.unit.number64 = self.last.out.at() + cast(row - dim(self.length - 1), I64)
        super()._step(nests, row)
