"""What the two kernels of attention share: statements as they are appended, and the end of a row's sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyruntime.codegen.addressing import Indexing, Lowering
from pyruntime.codegen.loop_invariants import hoist_invariants
from pyruntime.codegen.loop_ir import LoopCode, Lowered
from pyruntime.ir.dtype import BOOL, F32
from pyruntime.ir.expr import Expr, binary, cast, const, exp, index, isnan, rewrite, select
from pyruntime.ir.kernel import For, Loops, Set, Stmt, Store, Tensor, When
from pyruntime.ir.shape import AnyDim

from .attention_chain import Chain

LOWEST = const(float("-inf"))


class Statements:
    """Writes the loop form of a kernel. body: the statements so far; of_scores, of_result: turn expressions over the
    axes of the first and of the last product into expressions over variables."""

    def __init__(self, chain: Chain, out: Tensor, inputs: Sequence[Tensor]) -> None:
        self.chain = chain
        stand_in = Loops("attention", tuple(inputs), (), [])
        stand_in.outputs = (out,)
        self.work = Lowering(stand_in)
        self.of_scores, self.of_result = Indexing(self.work), Indexing(self.work)
        self.body: list[Stmt] = []
        self.unit = self.work.new()

    def code(self, units: AnyDim, arrays: Sequence[str] = ()) -> Lowered:
        """The kernel with these work units. arrays: those that the statements store to"""
        work = self.work
        buffers = tuple([(t.dtype, t.uid in work.written) for t in work.tensors])
        changing = {n for n, (_, w) in enumerate(buffers) if w} | {*arrays}
        body: list[Stmt] = [For(self.unit.value, work.number(units), self.body, "parallel")]
        body, work.variables = hoist_invariants(body, work.variables, changing)
        return Lowered(LoopCode(buffers, len(work.params), work.variables, body), work.tensors, [*work.params], units)

    def add(self, *statements: Stmt) -> None:
        self.body += statements

    def let(self, e: Expr) -> Expr:
        return self.work.let(e, self.body)

    def variable(self, value: Expr) -> Expr:
        return self.work.let(value, self.body, mutable=True)

    def change(self, variable: Expr, value: Expr) -> None:
        self.add(Set(variable.value, value))

    def inside(self, write: Callable[[], None]) -> list[Stmt]:
        """The statements that `write` appends."""
        outer, self.body = self.body, []
        write()
        inner, self.body = self.body, outer
        return inner

    def loop(self, extent: Expr, write: Callable[[Expr], None]) -> None:
        v = self.work.new()
        self.add(For(v.value, extent, self.inside(lambda: write(v))))

    def when(self, condition: Expr, write: Callable[[], None]) -> None:
        self.add(When(condition, self.inside(write), []))

    # ── a row ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def decode(self, number: Expr, shape: Sequence[AnyDim]) -> None:
        """Set the indices of the first axes of the scores from the number of an element of this shape."""
        for n in reversed(range(len(shape))):
            extent = self.work.number(shape[n])
            self.at_axis(n, self.let(binary("rem", number, extent)) if n else number)
            number = self.let(binary("div", number, extent)) if n else number

    def at_axis(self, axis: int, place: Expr) -> None:
        """Set the index of an axis of the scores, and of the same axis of the result."""
        self.of_scores.index_of[axis] = [place]
        own = self.chain.axes[axis]
        if own is not None:
            self.of_result.index_of[own] = [place]

    def at_element(self, place: Expr) -> None:
        """Set the index along the values."""
        if self.chain.wide is not None:
            self.of_result.index_of[self.chain.wide] = [place]

    def of_softmax(self, e: Expr, number: Expr, names: dict[Expr, Expr] | None = None) -> Expr:
        """An expression of the softmax for the row of this number, as float32. names: the values of its variables"""
        known = {v.value: x for v, x in (names or {}).items()} | {self.chain.softmax.unit.value: number}
        score = next((x for v, x in (names or {}).items() if v.op == "arg"), None)
        found = rewrite(e, lambda x: score if x.op == "arg" else known.get(x.value) if x.op == "var" else None)
        return self.let(cast(self.work.expression(found), F32))

    def store(
        self, number: Expr, largest: Expr, total: Expr, count: Expr, found: Callable[[Expr], tuple[Expr, Expr]]
    ) -> None:
        """Store elements of a row. total: of the row's exponentials; found: the place along the values, and the sum, of
        element n of the `count` elements"""
        softmax = self.chain.softmax
        shift = self.of_softmax(softmax.shift, number, {softmax.largest: largest})
        ratio = self.let(exp(finite(largest) - shift))
        names = {softmax.largest: largest, softmax.total: self.let(total * ratio)}
        divisor = self.of_softmax(softmax.divisor, number, names)

        def one(n: Expr) -> None:
            place, sums = found(n)
            self.at_element(place)
            value = self.variable(sums * ratio / divisor)
            if softmax.otherwise is not None:
                self.when(isnan(divisor), lambda: self._replace(value, number))
            self._result(value)

        self.loop(count, one)

    def _result(self, value: Expr) -> None:
        out, last = self.chain.last.out, self.chain.last
        if last.epilogue is not None:
            held = rewrite(last.epilogue, lambda e: cast(value, last.expr.dtype) if e.op == "arg" else None)
            value = self.of_result.load(held)
        at = self.of_result.address(out, [index(k) for k in range(out.rank)])
        self.add(Store(0, (at,), cast(value, out.dtype)))

    def _replace(self, value: Expr, number: Expr) -> None:
        """A row of NaNs becomes a row of equal weights, mostly zeros."""
        chain = self.chain
        assert chain.softmax.otherwise is not None
        weight = self.of_softmax(chain.softmax.otherwise, number)
        self.change(value, const(0.0))

        def add(key: Expr) -> None:
            self.of_result.index_of[chain.last.out.rank] = [key]
            self.change(value, value + weight * cast(self.of_result.load(chain.values), F32))

        self.loop(self.work.number(chain.length), add)


def finite(largest: Expr) -> Expr:
    """What exponentials are relative to: 0 if all logits are -inf, because the difference of infinities is NaN."""
    return select(largest == float("-inf"), 0.0, largest)


def larger(a: Expr, b: Expr) -> Expr:
    """The larger of two logits. A NaN may be lost, because its exponential is NaN, too."""
    return select(Expr("gt", (a, b), BOOL), a, b)


def below(a: Expr, b: Expr) -> Expr:
    return Expr("lt", (a, b), BOOL)


def element(array: str, at: Expr) -> Expr:
    return Expr("load", (at,), F32, array)
