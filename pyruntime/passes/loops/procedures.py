"""Procedures in the body of a loop, such as a sort, a scatter or an inner loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, index
from pyruntime.ir.kernel import For, Loops, Map, Stmt, While
from pyruntime.ir.statements import children, nodes, rebuild
from pyruntime.passes.caches.scattered_caches import scatter_of

TURNS = 16  # iterations of a loop whose number is not a dim, in estimates


def work(p: Loops) -> float:
    """The estimated number of iterations of all its loops."""
    return _work(p.body)


def _work(body: Sequence[Stmt]) -> float:
    total = 1.0
    for s in body:
        times = 1
        if isinstance(s, For):
            times = sh.estimate(s.extent.value) if s.extent.op in ("const", "dim") else TURNS
        elif isinstance(s, While):
            times = TURNS if s.most is None else sh.estimate(s.most)
        total += times * sum(_work(inner) for inner in children(s) if inner)
    return total


def changed(p: Loops, change: Callable[[Expr], Expr]) -> Loops:
    """The procedure with other expressions, for the same results."""

    def inner(body: list[Stmt]) -> list[Stmt]:
        return [rebuild(s, change, inner) for s in body]

    made = replace(p, body=inner(p.body))
    made.replaces(p, p.outputs)
    own = {t.uid for t in (*p.outputs, *p.scratch)}
    read = {x.value.uid: x.value for x in nodes(made.body) if x.op == "at" and x.value.uid not in own}
    made.args = tuple((read | {t.uid: t for t in p.bases}).values())
    return made


def with_own_bases(p: Loops, aliases: set[int]) -> list[Map | Loops]:
    """The procedure, after copies of the tensors among its bases that are reshapes or views. A scatter takes over the
    memory of its data."""
    scatter = scatter_of(p)
    bases, body = ((scatter.data,), scatter.body) if scatter is not None else (p.bases, p.body)
    copies: dict[int, Map] = {}
    for t in bases:
        if t.uid in aliases:
            copies[t.uid] = Map(t.at(*[index(n) for n in range(t.rank)])).making(t.shape, t.dtype, p.node)
    made = replace(p, body=body, bases=tuple([copies[t.uid].out if t.uid in copies else t for t in bases]))
    made.replaces(p, p.outputs)
    return [*copies.values(), made]
