"""The gradient of LinearAttention.

Letters as in its operator: N batch, H heads, G state heads, T steps, D key size, M value size; in the procedure b, g: a
state, s: a step, r, c: row and column of a state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, Scalar, const, dim
from pyruntime.ir.kernel import Accum, Builder, Tensor
from pyruntime.ops.standard.linear_attention import LINEAR_ATTENTION, Operands
from pyruntime.training.derive.backward_walk import OutputCotangents, Walk
from pyruntime.training.derive.reverse_recurrence import CHUNK, ReverseRecurrence, procedure

Place = tuple[Scalar, ...]


@LINEAR_ATTENTION.function
def linear_attention(walk: Walk, gs: OutputCotangents, of: Operands) -> Cotangents:
    """The cotangents of LinearAttention's operands. A work unit handles one state (item, group) over all steps."""
    t = walk.t
    n, steps, d, m = of.sizes
    states, groups, lead = n * of.groups, of.groups, (n, steps, of.groups)
    outputs: dict[str, Sequence[sh.AnyDim]] = {
        "query": (n, steps, of.heads, d), "key": (*lead, d), "value": (*lead, m), "past": (n, groups, d, m),
        "decay": (*lead, d), "beta": lead,
    }  # fmt: skip
    scratch: dict[str, Sequence[sh.AnyDim]] = {
        "state": (states, d, m), "marks": (states, sh.ceildiv(steps, CHUNK), d, m), "before": (states, CHUNK, d, m),
        "new": (states, m), "stored": (states, m), "of_new": (states, m),
    }  # fmt: skip

    def body(k: Builder, tensors: Mapping[str, Tensor]) -> None:
        with k.parallel(dim(states)) as unit:
            _Backward(k, unit, of, gs, tensors).run()

    made = procedure(t, "linear_attention_back", [*of.tensors, *gs], F32, outputs, scratch, body)
    out = [
        (x, t.reshape(made[name], x.shape)) for name, x in (("query", of.query), ("key", of.key), ("value", of.value))
    ]
    if of.past is not None:
        out.append((of.past, made["past"]))
    if of.decay is not None:
        out.append((of.decay, _fitting(walk, made["decay"], of)))
    if of.beta is not None:
        out.append((of.beta, _added(walk, made["beta"], of.beta)))
    return out


def _fitting(walk: Walk, g: Tensor, of: Operands) -> Tensor:
    """g (N, T, G, D) summed over the rows of each state that share a decay."""
    assert of.decay is not None
    count, wide = g.shape[3], of.has_wide_decay

    def term(n: Expr, s: Expr, c: Expr, r: Expr) -> Expr:
        rows = dim(sh.select(wide, count, 1))
        return g.at(n, s, c / rows, c % rows + r)

    return walk.t.reduce_compute("sum", of.decay.shape, [sh.select(wide, 1, count)], term)


def _added(walk: Walk, g: Tensor, beta: Tensor) -> Tensor:
    """g (N, T, G) summed over the states that share a beta."""
    terms = sh.floordiv(g.shape[2], beta.shape[2])
    return walk.t.reduce_compute("sum", beta.shape, [terms], lambda n, s, c, more: g.at(n, s, c + more))


class _Backward(ReverseRecurrence):
    """The procedure for one state. of_query, …, of_beta: cotangents of the operands, of_state: of the state after the
    step that comes next. state, marks, before: the state, that before each chunk, and those before the steps of one, to
    which `_update` applies the decay; new: what a step adds to the state for its key; stored: what the state had for
    that key; of_new: cotangent of new"""

    replays = True

    def __init__(
        self, k: Builder, unit: Expr, of: Operands, gs: OutputCotangents, tensors: Mapping[str, Tensor]
    ) -> None:  # fmt: skip
        self.k, self.unit, self.of = k, unit, of
        self.of_y, self.of_last = gs
        _, self.steps, self.d, self.m = of.sizes
        self.b, self.g = k.let(unit / dim(of.groups)), k.let(unit % dim(of.groups))
        self.of_query, self.of_key, self.of_value = (tensors[name] for name in ("query", "key", "value"))
        self.of_state, self.of_decay, self.of_beta = (tensors[name] for name in ("past", "decay", "beta"))
        self.state, self.marks, self.before = (tensors[name] for name in ("state", "marks", "before"))
        self.new, self.stored, self.of_new = (tensors[name] for name in ("new", "stored", "of_new"))

    def run(self) -> None:
        at = (self.b, self.g)
        for x, target, place in ((self.of.past, self.state, (self.unit,)), (self.of_last, self.of_state, at)):
            self._copy(None if x is None else (x, at), target, place)
        self.over_steps(dim(self.steps))

    def _copy(self, source: tuple[Tensor, Place] | None, target: Tensor, at: Place) -> None:
        """Copy a state from this place, or fill it with zeros."""
        with self.k.loop(self.d) as r, self.k.loop(self.m, "vector") as c:
            self.k.store(target, (*at, r, c), 0.0 if source is None else source[0].at(*source[1], r, c))

    def copy_states(self, chunk: Expr, is_back: bool) -> None:
        own, stored = (self.state, (self.unit,)), (self.marks, (self.unit, chunk))
        self._copy(*((stored, *own) if is_back else (own, *stored)))

    def _store_row(self, target: Tensor, at: Place, value: Callable[[Expr], Scalar], adds: bool = False) -> None:
        """Store value(c) in each column c of a row, or add it."""
        with self.k.loop(self.m, "vector") as c:
            new = value(c)
            self.k.store(target, (*at, c), target.at(*at, c) + new if adds else new)

    def _total(self, term: Callable[[Expr], Expr]) -> Expr:
        """Σ term(c), in lanes."""
        total = self.k.var(0.0, F32)
        with self.k.loop(self.m, "vector") as c:
            self.k.emit(Accum(total.get.value, "sum", term(c)))
        return self.k.let(total.get)

    def _decay_rows(self, s: Expr, states: Tensor, at: Place) -> None:
        """Multiply the rows of a state by the factors of a step."""
        with self.k.loop(self.d) as r:
            factor = self.k.let(self.of.factor_at(self.b, s, self.g, r))
            self._store_row(states, (*at, r), lambda c: states.at(*at, r, c) * factor)

    def _update(self, s: Expr, states: Tensor, at: Place) -> None:
        """Apply the decay to a state, and find what it gains in a step."""
        k, of, unit, step = self.k, self.of, self.unit, (self.b, s, self.g)
        if of.decay is not None:
            self._decay_rows(s, states, at)
        if of.beta is None:
            self._store_row(self.new, (unit,), lambda c: of.value_at(*step, c))
            return
        self._store_row(self.stored, (unit,), lambda c: 0.0)
        with k.loop(self.d) as r:
            key = k.let(of.key_at(*step, r))
            self._store_row(self.stored, (unit,), lambda c: states.at(*at, r, c) * key, adds=True)
        beta = k.let(of.beta_at(*step))
        self._store_row(self.new, (unit,), lambda c: beta * self._missing(s, c))

    def _missing(self, s: Expr, c: Expr) -> Expr:
        """The value of a step without what the state had for its key."""
        return self.of.value_at(self.b, s, self.g, c) - self.stored.at(self.unit, c)

    def forward(self, step: Expr, place: Expr | None) -> None:
        k, unit = self.k, self.unit
        if place is not None:
            self._copy((self.state, (unit,)), self.before, (unit, place))
        self._update(step, self.state, (unit,))
        with k.loop(self.d) as r:
            key = k.let(self.of.key_at(self.b, step, self.g, r))
            self._store_row(self.state, (unit, r), lambda c: key * self.new.at(unit, c), adds=True)

    def backward(self, step: Expr, place: Expr) -> None:
        k, of, unit, state, at = self.k, self.of, self.unit, (self.b, self.g), (self.b, step, self.g)
        of_state, new, of_new = self.of_state, self.new, self.of_new
        self._update(step, self.before, (unit, place))
        self._of_queries(step, place)
        self._store_row(of_new, (unit,), lambda c: 0.0)
        with k.loop(self.d) as r:
            key = k.let(of.key_at(*at, r))
            self._store_row(of_new, (unit,), lambda c: of_state.at(*state, r, c) * key, adds=True)
            k.store(self.of_key, (*at, r), self._total(lambda c: of_state.at(*state, r, c) * new.at(unit, c)))
        beta = const(1.0) if of.beta is None else k.let(of.beta_at(*at))
        self._store_row(self.of_value, at, lambda c: beta * of_new.at(unit, c))
        if of.beta is not None:  # through what the state had for the key, too
            k.store(self.of_beta, at, self._total(lambda c: of_new.at(unit, c) * self._missing(step, c)))
            with k.loop(self.d) as r:
                key = k.let(of.key_at(*at, r))
                had = self._total(lambda c: beta * of_new.at(unit, c) * self.before.at(unit, place, r, c))
                self.add(self.of_key, (*at, r), -had)
                self._store_row(of_state, (*state, r), lambda c: -(beta * of_new.at(unit, c) * key), adds=True)
        if of.decay is not None:
            with k.loop(self.d) as r:
                total = self._total(lambda c: of_state.at(*state, r, c) * self.before.at(unit, place, r, c))
                k.store(self.of_decay, (*at, r), total)
            self._decay_rows(step, of_state, state)

    def _of_queries(self, s: Expr, place: Expr) -> None:
        """The cotangents of queries, and what outputs add to that of the state."""
        k, of, of_y, unit, share = self.k, self.of, self.of_y, self.unit, self.of.heads // self.of.groups
        with k.loop(share) as n, k.loop(self.d) as r:
            h = k.let(self.g * share + n)
            at = (self.b, s, h, r)
            if of_y is None:
                k.store(self.of_query, at, 0.0)
                return
            key = k.let(of.key_at(self.b, s, self.g, r))
            query = k.let(of.query_at(*at) * of.scale)

            def g(c: Expr, y: Tensor = of_y, h: Expr = h) -> Expr:
                return y.at(self.b, s, h * dim(self.m) + c)

            def of_query(c: Expr, r: Expr = r, key: Expr = key) -> Expr:
                return g(c) * (self.before.at(unit, place, r, c) + key * self.new.at(unit, c))

            k.store(self.of_query, at, self._total(of_query) * of.scale)
            self._store_row(self.of_state, (self.b, self.g, r), lambda c: g(c) * query, adds=True)
