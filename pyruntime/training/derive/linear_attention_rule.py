"""The gradient of LinearAttention.

Letters as in its operator: N batch, H heads, G state heads, T steps, D key size, M value size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, Scalar, const, dim, exp, minimum
from pyruntime.ir.kernel import Accum, Builder, Tensor
from pyruntime.ops.standard.linear_attention import LINEAR_ATTENTION
from pyruntime.training.derive.backward_walk import OutputCotangents, Walk

CHUNK = 64  # steps whose states are in memory at once


@LINEAR_ATTENTION.function
def linear_attention(
    walk: Walk, gs: OutputCotangents, args: Sequence[Tensor], extras: Sequence[Tensor | None], sizes: tuple[Any, ...],
    scale: Scalar,
) -> Cotangents:  # fmt: skip
    """A work unit for each state goes over the steps once to keep the state before each chunk, then over the chunks
    backwards, of which it computes the states again."""
    t = walk.t
    n, steps, heads, groups, d, m = sizes
    y, state = gs
    chunks = sh.ceildiv(steps, CHUNK)
    shapes: list[tuple[Any, ...]] = [
        (n, steps, heads, d),
        (n, steps, groups, d),
        (n, steps, groups, m),
        (n, groups, d, m),
    ]
    shapes += [(n, steps, groups, d), (n, steps, groups)]
    units = n * groups
    scratch: list[tuple[Any, ...]] = [
        (units, d, m),
        (units, chunks, d, m),
        (units, CHUNK, d, m),
        (units, m),
        (units, m),
        (units, m),
    ]
    given = [x for x in (*args, *extras, y, state) if x is not None]

    def body(k: Builder, *tensors: Tensor) -> None:
        _Backward(k, args, extras, (y, state), sizes, scale, tensors).run()

    made = t.loops("linear_attention_back", given, [(s, F32) for s in shapes], body, [(s, F32) for s in scratch])
    past, decay, beta = extras
    out = [(x, t.reshape(g, x.shape)) for x, g in zip(args, made, strict=False)]
    if past is not None:
        out.append((past, made[3]))
    if decay is not None:
        out.append((decay, _fitting(walk, made[4], decay, groups)))
    if beta is not None:
        out.append((beta, _added(walk, made[5], beta)))
    return out


def _is_wide(decay: Tensor, groups: sh.AnyDim) -> sh.AnyDim:
    """1 if there is a decay for each row of a state, 0 if there is one for each state."""
    return sh.compare("ne", decay.shape[2], groups)


def _fitting(walk: Walk, g: Tensor, decay: Tensor, groups: sh.AnyDim) -> Tensor:
    """g (N, T, G, D) summed over the rows of each state that share a decay."""
    count, wide = g.shape[3], _is_wide(decay, groups)

    def term(n: Expr, s: Expr, c: Expr, r: Expr) -> Expr:
        rows = dim(sh.select(wide, count, 1))
        return g.at(n, s, c / rows, c % rows + r)

    return walk.t.reduce_compute("sum", decay.shape, [sh.select(wide, 1, count)], term)


def _added(walk: Walk, g: Tensor, beta: Tensor) -> Tensor:
    """g (N, T, G) summed over the states that share a beta."""
    terms = sh.floordiv(g.shape[2], beta.shape[2])
    return walk.t.reduce_compute("sum", beta.shape, [terms], lambda n, s, c, more: g.at(n, s, c + more))


class _Backward:
    def __init__(
        self, k: Builder, args: Sequence[Tensor], extras: Sequence[Tensor | None], gs: OutputCotangents,
        sizes: tuple[Any, ...], scale: Scalar, tensors: Sequence[Tensor],
    ) -> None:  # fmt: skip
        self.k, self.scale = k, scale
        self.query, self.key, self.value = args
        self.past, self.decay, self.beta = extras
        self.y, self.last = gs
        self.n, self.steps, self.heads, self.groups, self.d, self.m = sizes
        self.dq, self.dk, self.dv, self.ds, self.ddecay, self.dbeta = tensors[:6]
        self.state, self.marks, self.before, self.new, self.stored, self.dnew = tensors[6:]

    def run(self) -> None:
        k = self.k
        chunks = dim(sh.ceildiv(self.steps, CHUNK))
        with k.parallel(dim(self.n * self.groups)) as unit:
            self.unit, self.b = unit, k.let(unit / dim(self.groups))
            self.g = k.let(unit % dim(self.groups))
            at = (self.b, self.g)
            self.cells(lambda r, c: (self.state, (unit, r, c), self.past.at(*at, r, c) if self.past else 0.0))
            self.cells(lambda r, c: (self.ds, (*at, r, c), self.last.at(*at, r, c) if self.last else 0.0))
            with k.loop(chunks) as chunk:
                self.cells(lambda r, c: (self.marks, (unit, chunk, r, c), self.state.at(unit, r, c)))
                with k.loop(self.count(chunk)) as i:
                    self.forward(k.let(chunk * CHUNK + i))
            with k.loop(chunks) as j:
                chunk = k.let(chunks - 1 - j)
                self.cells(lambda r, c: (self.state, (unit, r, c), self.marks.at(unit, chunk, r, c)))
                with k.loop(self.count(chunk)) as i:
                    self.cells(lambda r, c: (self.before, (unit, i, r, c), self.state.at(unit, r, c)))
                    self.forward(k.let(chunk * CHUNK + i))
                with k.loop(self.count(chunk)) as i:
                    back = k.let(self.count(chunk) - 1 - i)
                    self.backward(k.let(chunk * CHUNK + back), lambda r, c: (self.before, (unit, back, r, c)))

    def count(self, chunk: Expr) -> Expr:
        return self.k.let(minimum(dim(self.steps) - chunk * CHUNK, CHUNK))

    def cells(self, element: Callable[[Expr, Expr], tuple[Tensor, tuple[Scalar, ...], Scalar]]) -> None:
        """Store an element for each row and column of a state."""
        with self.k.loop(self.d) as r, self.k.loop(self.m, "vector") as c:
            self.k.store(*element(r, c))

    def total(self, extent: Scalar, term: Callable[[Expr], Expr]) -> Expr:
        """Σ term(c), in lanes."""
        total = self.k.var(0.0, F32)
        with self.k.loop(extent, "vector") as c:
            self.k.emit(Accum(total.get.value, "sum", term(c)))
        return self.k.let(total.get)

    def factor(self, s: Expr, r: Expr) -> Expr:
        assert self.decay is not None
        wide = _is_wide(self.decay, self.groups)
        at = self.g * dim(sh.select(wide, self.d, 1)) + r * dim(wide)
        return self.k.let(exp(self.decay.at(self.b, s, at)))

    def weight(self, s: Expr) -> Expr:
        assert self.beta is not None
        return self.k.let(self.beta.at(self.b, s, self.g * dim(sh.compare("ne", self.beta.shape[2], 1))))

    def updates(self, s: Expr, at: Callable[[Expr, Expr], tuple[Tensor, tuple[Scalar, ...]]]) -> None:
        """Apply the decay to a state; then the values that it gains in a step."""
        k = self.k
        if self.decay is not None:
            with k.loop(self.d) as r:
                factor = self.factor(s, r)
                with k.loop(self.m, "vector") as c:
                    tensor, place = at(r, c)
                    k.store(tensor, place, tensor.at(*place) * factor)
        if self.beta is not None:
            with k.loop(self.m, "vector") as c:
                k.store(self.stored, (self.unit, c), 0.0)
            with k.loop(self.d) as r:
                key = k.let(self.key_at(s, r))
                with k.loop(self.m, "vector") as c:
                    tensor, place = at(r, c)
                    here = (self.unit, c)
                    k.store(self.stored, here, self.stored.at(*here) + tensor.at(*place) * key)
        weight = None if self.beta is None else self.weight(s)
        with k.loop(self.m, "vector") as c:
            value = self.value_at(s, c)
            k.store(
                self.new, (self.unit, c),
                value if weight is None else weight * (value - self.stored.at(self.unit, c)),
            )  # fmt: skip

    def key_at(self, s: Expr, r: Expr) -> Expr:
        return self.key.at(self.b, s, self.g * self.d + r)

    def value_at(self, s: Expr, c: Expr) -> Expr:
        return self.value.at(self.b, s, self.g * self.m + c)

    def forward(self, s: Expr) -> None:
        k, unit = self.k, self.unit
        self.updates(s, lambda r, c: (self.state, (unit, r, c)))
        with k.loop(self.d) as r:
            key = k.let(self.key_at(s, r))
            with k.loop(self.m, "vector") as c:
                at = (unit, r, c)
                k.store(self.state, at, self.state.at(*at) + key * self.new.at(unit, c))

    def backward(self, s: Expr, at: Callable[[Expr, Expr], tuple[Tensor, tuple[Scalar, ...]]]) -> None:
        """One step; `at` gives the state before it, to which this applies the decay."""
        k, unit, ds, here = self.k, self.unit, self.ds, (self.b, self.g)
        self.updates(s, at)

        def decayed(r: Expr, c: Expr) -> Expr:
            tensor, place = at(r, c)
            return tensor.at(*place)

        if self.y is not None:
            self.into_queries(self.y, s, decayed)
        else:
            with k.loop(self.heads // self.groups) as share, k.loop(self.d) as r:
                k.store(self.dq, (self.b, s, self.g * (self.heads // self.groups) + share, r), 0.0)
        with k.loop(self.m, "vector") as c:
            k.store(self.dnew, (unit, c), 0.0)
        with k.loop(self.d) as r:
            key = k.let(self.key_at(s, r))
            with k.loop(self.m, "vector") as c:
                k.store(self.dnew, (unit, c), self.dnew.at(unit, c) + ds.at(*here, r, c) * key)
            total = self.total(self.m, lambda c: ds.at(*here, r, c) * self.new.at(unit, c))
            k.store(self.dk, (self.b, s, self.g, r), total)
        self.into_values(s, decayed)
        if self.decay is None:
            return
        with k.loop(self.d) as r:
            total = self.total(self.m, lambda c: ds.at(*here, r, c) * decayed(r, c))
            k.store(self.ddecay, (self.b, s, self.g, r), total)
            factor = self.factor(s, r)
            with k.loop(self.m, "vector") as c:
                k.store(ds, (*here, r, c), ds.at(*here, r, c) * factor)

    def into_queries(self, y: Tensor, s: Expr, decayed: Callable[[Expr, Expr], Expr]) -> None:
        k, share_of = self.k, self.heads // self.groups
        with k.loop(share_of) as share, k.loop(self.d) as r:
            h = k.let(self.g * share_of + share)
            key, query = k.let(self.key_at(s, r)), k.let(self.query.at(self.b, s, h * self.d + r) * self.scale)

            def flow(c: Expr, h: Expr = h) -> Expr:
                return y.at(self.b, s, h * self.m + c)

            def state(c: Expr, r: Expr = r, key: Expr = key) -> Expr:
                return decayed(r, c) + key * self.new.at(self.unit, c)

            total = self.total(self.m, lambda c: flow(c) * state(c))
            k.store(self.dq, (self.b, s, h, r), total * self.scale)
            with k.loop(self.m, "vector") as c:
                at = (self.b, self.g, r, c)
                k.store(self.ds, at, self.ds.at(*at) + flow(c) * query)

    def into_values(self, s: Expr, decayed: Callable[[Expr, Expr], Expr]) -> None:
        """Into v and, in the delta rules, through what the state has stored for the key."""
        k, unit, here = self.k, self.unit, (self.b, s, self.g)
        weight = const(1.0) if self.beta is None else self.weight(s)
        with k.loop(self.m, "vector") as c:
            k.store(self.dv, (*here, c), weight * self.dnew.at(unit, c))
        if self.beta is None:
            return
        rest = self.total(self.m, lambda c: self.dnew.at(unit, c) * (self.value_at(s, c) - self.stored.at(unit, c)))
        k.store(self.dbeta, here, rest)
        with k.loop(self.d) as r:
            key, at = k.let(self.key_at(s, r)), (*here, r)
            less = self.total(self.m, lambda c: weight * self.dnew.at(unit, c) * decayed(r, c))
            k.store(self.dk, at, self.dk.at(*at) - less)
            with k.loop(self.m, "vector") as c:
                cell = (self.b, self.g, r, c)
                k.store(self.ds, cell, self.ds.at(*cell) - weight * self.dnew.at(unit, c) * key)
