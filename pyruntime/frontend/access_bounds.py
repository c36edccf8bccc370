"""Bounds checks of affine accesses: an operand may be smaller than its operator assumes
(docs/design/security-and-limits.md#bounds-of-affine-accesses)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, affine, rewrite, walk
from pyruntime.ir.kernel import Accum, For, Kernel, Let, Loops, Map, Reduce, Set, Stmt, Store, Tensor
from pyruntime.ir.shape import AnyDim

Extents = dict[Any, AnyDim]  # extents of indices and loop variables, by their keys in `affine`
Check = tuple[AnyDim, str]  # a dim that is 0 if an access is out of bounds, and the message for that case


def accesses_to_check(kernel: Kernel) -> Iterator[Check]:
    """The checks of a kernel's loads and stores at affine coordinates. Coordinates in the condition of a `guard`, and
    all accesses inside `When` and `While`, are taken to be in bounds; an index from data is `checked` at run time."""
    if isinstance(kernel, Loops):
        yield from _statements(kernel.body, {}, {})
    elif isinstance(kernel, (Map, Reduce)):
        extents = [*kernel.out.shape, *(kernel.extents if isinstance(kernel, Reduce) else ())]
        yield from _loads(kernel.expr, {("index", n): d for n, d in enumerate(extents)}, {}, set())


def _statements(body: Sequence[Stmt], extents: Extents, lets: dict[int, Expr]) -> Iterator[Check]:
    seen: set[Any] = set()
    for s in body:
        if isinstance(s, (Let, Set, Accum, Store)):
            yield from _loads(s.value, extents, lets, seen)
        if isinstance(s, Let) and not s.mutable and affine(s.value) is not None:
            lets[s.var] = s.value
        elif isinstance(s, Store):
            yield from _access(s.target, s.coords, extents, lets, extents)
        elif isinstance(s, For) and s.extent.op in ("const", "dim"):
            yield from _statements(s.body, {**extents, ("var", s.var): s.extent.value}, lets)


def _loads(e: Expr, extents: Extents, lets: dict[int, Expr], seen: set[Any]) -> Iterator[Check]:
    todo = [(e, extents)]
    while todo:
        e, free = todo.pop()
        if not e.tensors():
            continue
        key = (id(e), None if free is extents else tuple(free))
        if key in seen:
            continue
        seen.add(key)
        if e.op == "guard":
            todo.append((e.args[0], free))
            asked = {(v.op, v.value) for v in walk(e.args[0]) if v.op in ("index", "var")}
            if asked and not lets:
                todo += [(a, {k: d for k, d in free.items() if k not in asked}) for a in e.args[1:]]
            continue
        if e.op == "at" and not _follows(e, free):
            yield from _access(e.value, e.args, free, lets, extents)
        todo += [(a, free) for a in e.args if a.args]


def _follows(at: Expr, free: Extents) -> bool:
    """Whether each coordinate is an index with the extent of its axis, as in most loads."""
    for c, d in zip(at.args, at.value.shape, strict=True):
        if c.op != "index" or free.get(("index", c.value)) != d:
            return False
    return True


def _access(
    t: Tensor, coords: Sequence[Expr], free: Extents, lets: dict[int, Expr], extents: Extents
) -> Iterator[Check]:
    """The checks of one access. free: extents of the variables that no condition restricts."""
    narrowed = len(free) < len(extents)
    for axis, (c, d) in enumerate(zip(coords, t.shape, strict=True)):
        if c.op == "index" and free.get(("index", c.value)) == d or narrowed and c.op == "const":
            continue
        if lets and c.op != "index":
            c = rewrite(c, lambda e: lets.get(e.value) if e.op == "var" else None)
        form = affine(c)
        if form is None or not form[1].keys() <= free.keys() or (narrowed and not form[1]):
            continue
        terms = tuple([(n, free[k]) for k, n in form[1].items()])
        inside = _inside(form[0], terms, d, tuple(extents.values()))
        if inside != 1:
            what, shape = f'"{t.name}"' if t.name else "an operand", ", ".join(map(str, t.shape))
            yield inside, f"{what} of shape [{shape}] is too small along axis {axis} for the other shapes"


@lru_cache(maxsize=4096)
def _inside(
    base: AnyDim, terms: tuple[tuple[AnyDim, AnyDim], ...], size: AnyDim, extents: tuple[AnyDim, ...]
) -> AnyDim:
    """1 if base + Σ coefficient · i is in [0, size) for all i in their extents, or if an extent is 0; else 0. A Dim if
    that depends on symbols."""
    low = high = base
    for coefficient, extent in terms:
        end = coefficient * (extent - 1)
        if isinstance(coefficient, int):
            low, high = (low, high + end) if coefficient > 0 else (low + end, high)
        else:
            low, high = low + sh.minimum(end, 0), high + sh.maximum(end, 0)
    inside = sh.minimum(sh.compare("le", 0, low), sh.compare("lt", 0, size - high))
    return inside if inside == 1 else sh.maximum(inside, sh.compare("eq", sh.size(extents), 0))
