"""Updates of states in place, as kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, cast, const, dim, maximum, minimum, select
from pyruntime.ir.kernel import Accum, Alias, Builder, Leaf, Loops, Map, Tensor, Var
from pyruntime.ir.shape import AnyDim
from pyruntime.training.derive.row_gradients import RowGradient

CHUNK = 4096  # elements of a work unit

New = Callable[..., Sequence[Expr]]


@dataclass(slots=True)
class Updates:
    """Writes states whose changes belong to one step. numbers: of the step, in one tensor, of which the first is 0 if
    the step must change nothing; times: 0 or 1, of which 0 leaves all updates out; made: the states that were updated,
    so far"""

    t: Tracer
    numbers: Tensor
    times: AnyDim
    made: list[Tensor]

    def write(
        self, states: Sequence[Tensor], of: Sequence[Tensor], scalars: Sequence[int], new: New, active: int = 0,
        averages: int = 0,
    ) -> None:  # fmt: skip
        """The new values of states of one shape: new(builder, *states, *of, *scalars), element by element.

        of: tensors of the same shape, or of one number; scalars: places in `numbers`; active: place of a number that is
        0 if these states stay as they are, but for the last ones, so many averages"""
        size = sh.size(states[0].shape)
        flat = [self.t.reshape(x, (sh.size(x.shape),)) for x in (*states, *[settled(self.t, x) for x in of])]

        def body(k: Builder, *out: Tensor) -> None:
            with k.parallel(dim(sh.ceildiv(size, CHUNK) * self.times)) as block:
                low = k.let(block * CHUNK)
                element = self._element(k, out, scalars, new, active, averages)
                with k.loop(k.let(minimum(dim(size) - low, CHUNK)), "vector") as i:
                    element((low + i,), [x.at(0 if x.shape == (1,) else low + i) for x in flat[len(states) :]])

        self._record("update", flat[: len(states)], [*flat, self.numbers], body)

    def write_rows(
        self, states: Sequence[Tensor], gradient: RowGradient, scalars: Sequence[int], new: New, idle: Tensor | None,
        shrinks: bool, active: int, averages: int,
    ) -> None:  # fmt: skip
        """`write` for a gradient of few rows. The first state is the weight, the others are its moments.

        idle: a state with a number for each row, or None if a row without a gradient changes like others. It is 1 if
            all moments of the row are 0; then a step without a gradient for this row changes no moment. 0: unknown
        shrinks: whether it changes the weight"""
        rows, size = states[0].shape[0], sh.size(states[0].shape[1:])
        flat = [self.t.reshape(x, (rows, size)) for x in states]
        values = self.t.reshape(gradient.values, (gradient.values.shape[0], size))
        per = max(CHUNK // size, 1) if isinstance(size, int) else 1

        def body(k: Builder, *out: Tensor) -> None:
            with k.parallel(dim(sh.ceildiv(rows, per) * self.times)) as block:
                low = k.let(block * per)
                element = self._element(k, out[: len(flat)], scalars, new, active, averages)
                with k.loop(k.let(minimum(dim(rows) - low, per))) as r:
                    row = k.let(low + r)
                    entry = k.let(gradient.entry.at(row))
                    has_gradient = k.let(entry >= 0)
                    moves = k.var(True, has_gradient.dtype)
                    if idle is not None:
                        self._find_idle(k, row, has_gradient, moves, out)
                    place = k.let(maximum(entry, 0))
                    zero = const(0.0, values.dtype)
                    with k.when(moves.get), k.loop(dim(size), "vector") as i:
                        element((row, i), [select(has_gradient, values.at(place, i), zero)])
                    if shrinks:
                        with k.when(~moves.get), k.loop(dim(size), "vector") as i:
                            element((row, i), [zero], changed=1)

        changed = [*flat, *([] if idle is None else [idle])]
        self._record("update_rows", changed, [*changed, gradient.entry, values, self.numbers], body)

    def _find_idle(self, k: Builder, row: Expr, has_gradient: Expr, moves: Var, out: Sequence[Tensor]) -> None:
        """Set `moves` to whether a row has a gradient or a moment that is not 0, and note the latter."""
        _, *moments, idle = out
        moves.set(has_gradient)
        with k.when(~has_gradient & (idle.at(row) == 0.0)):
            largest = k.var(0.0, idle.dtype)
            for moment in moments:
                with k.loop(dim(moment.shape[1]), "vector") as i:
                    k.emit(Accum(largest.get.value, "max", abs(moment.at(row, i))))
            moves.set(largest.get != 0.0)
        k.store(idle, (row,), select(moves.get, const(0.0, idle.dtype), 1.0))

    def _element(
        self, k: Builder, out: Sequence[Tensor], scalars: Sequence[int], new: New, active: int, averages: int
    ) -> Callable[..., None]:
        """Returns what writes the states at some coordinates; changed: how many of them."""
        good = k.let(self.numbers.at(0) > 0.0)
        held = k.let(good & (self.numbers.at(active) > 0.0)) if active else good
        dtype = out[0].dtype
        numbers = [k.let(cast(self.numbers.at(n), dtype)) for n in scalars]
        count = len(out)

        def element(at: Sequence[Expr], of: Sequence[Expr], changed: int = count) -> None:
            old = [k.let(x.at(*at)) for x in out[:changed]]
            zeros = [const(0.0, dtype)] * (count - changed)
            made = new(k, *old, *zeros, *[k.let(cast(x, dtype)) for x in of], *numbers)
            for n, (x, before, value) in enumerate(zip(out, old, made, strict=False)):
                k.store(x, at, select(held if n < count - averages else good, value, before))

        return element

    def _record(self, name: str, states: Sequence[Tensor], args: Sequence[Tensor], body: Callable[..., None]) -> None:
        outputs = [(x.shape, x.dtype) for x in states]
        made = self.t.loops(name, list(dict.fromkeys(args)), outputs, body)
        kernel = made[0].kernel
        assert isinstance(kernel, Loops)
        kernel.bases = tuple(states)
        self.made += made


def settled(t: Tracer, x: Tensor) -> Tensor:
    """x, or a copy if it is only a view of a state: an update before its reader would change it."""
    source = x
    while isinstance(source.kernel, (Alias, Map)):
        loads = source.kernel.inputs
        if isinstance(source.kernel, Map) and (source.kernel.expr.op != "at" or len(loads) != 1):
            return x
        source = loads[0]
    if not (isinstance(source.kernel, Leaf) and source.kernel.kind == "state"):
        return x
    size = sh.size(x.shape)
    flat = t.reshape(x, (size,))

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(sh.ceildiv(size, CHUNK))) as block:
            low = k.let(block * CHUNK)
            with k.loop(k.let(minimum(dim(size) - low, CHUNK)), "vector") as i:
                k.store(out, (low + i,), flat.at(low + i))

    return t.reshape(t.loops("copy", [flat], [((size,), x.dtype)], body)[0], x.shape)
