"""Kernels read through reshapes of what was repeated: heads that share keys and values are not copied for each.

A reshape needs its tensor in memory, so Expand in front of one (`[batch, shared, heads, …]` to `[batch, shared · heads,
…]`) was a copy. Read in place, an index of joined axes is taken apart by divisions. For GPUs: there a load that divides
costs less than the copy; routines on the CPU want strides.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.expr import Expr, dim, is_view, rem, rewrite, walk
from pyruntime.ir.kernel import Alias, Block, Map, Reduce, Tensor
from pyruntime.ir.shape import AnyDim, Shape
from pyruntime.passes.fusion.map_fusion import substitute

Parts = list[tuple[Expr, AnyDim]]  # indices and their extents
Joined = dict[int, tuple[Expr, Parts]]  # an index made of several, with these, by its id


def read_repeated(block: Block) -> None:
    """In this block and its inner blocks; readers before what they read, which is a view until it is their turn."""
    for kernel in reversed(list(all_kernels(block))):
        if isinstance(kernel, (Map, Reduce)):
            kernel.expr = rewrite(kernel.expr, lambda e: _through(e, {}))


def _through(e: Expr, joined: Joined) -> Expr | None:
    """A load through reshapes and views, in the tensor that one of them repeats; None if none does."""
    if e.op != "at":
        return None
    t = e.value
    if isinstance(t.kernel, Map) and t.kernel.expr.op == "at" and is_view(t.kernel.expr):
        inner = substitute(t.kernel.expr, e.args)
        return inner if _repeats(t) else _through(inner, joined)
    base = in_base(e, joined)
    return None if base is None else _through(base, joined)


def in_base(e: Expr, joined: Joined) -> Expr | None:
    """A load of a reshaped tensor as one of that which was reshaped; None where it is not, or that cannot be said."""
    t = e.value
    if not isinstance(t.kernel, Alias):
        return None
    base = t.kernel.base
    coords = _reshaped(list(zip(e.args, t.shape, strict=True)), base.shape, joined)
    return None if coords is None else base.at(*coords)


def _repeats(t: Tensor) -> bool:
    """Whether a view has each element of another tensor several times, for some axis that decides nothing."""
    assert isinstance(t.kernel, Map)
    decide = {x.value for x in walk(t.kernel.expr) if x.op == "index"}
    return any(d != 1 and n not in decide for n, d in enumerate(t.shape))


def _reshaped(given: Parts, base: Shape, joined: Joined) -> list[Expr] | None:
    """Coordinates in a tensor of shape `base`, of which another is a reshape, from the coordinates there and their
    extents. None unless each axis of one is made of some of the other, with known extents where an index is divided."""
    rest = [part for at, d in given for part in joined.get(id(at), (at, [(at, d)]))[1] if part[1] != 1]
    found: list[Expr] = []
    n = 0
    while n < len(base):
        if base[n] == 1:
            found.append(dim(0))
            n += 1
        elif (count := _reach([d for _, d in rest], base[n])) is not None:
            found.append(_join(rest[:count], joined))
            rest = rest[count:]
            n += 1
        elif rest and (count := _reach(base[n:], rest[0][1])) is not None:
            extents = base[n : n + count]
            if not all(isinstance(d, int) and d > 0 for d in extents[1:]):
                return None
            found += _apart(rest.pop(0)[0], extents)
            n += count
        else:
            return None
    return None if rest else found


def _reach(extents: Sequence[AnyDim], size: AnyDim) -> int | None:
    """How many of these make up a size."""
    return next((n for n in range(1, len(extents) + 1) if sh.size(extents[:n]) == size), None)


def _join(parts: Parts, joined: Joined) -> Expr:
    index, _ = parts[0]
    for at, extent in parts[1:]:
        index = index * dim(extent) + at
    joined[id(index)] = index, parts
    return index


def _apart(index: Expr, extents: Sequence[AnyDim]) -> list[Expr]:
    """An index of axes with these extents, the first of which need not be known."""
    digits: list[Expr] = []
    for d in reversed(extents[1:]):
        digits.insert(0, dim(0) if d == 1 else rem(index, dim(d)))
        index = index if d == 1 else index / dim(d)
    return [index, *digits]


__all__ = ["Joined", "in_base", "read_repeated"]
