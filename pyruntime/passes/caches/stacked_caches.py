"""Keys and values in one cache, [2, batch, heads, places, size], are made longer at once.

ONNX Runtime's tools write decoders so, and its Attention has such a past: it is taken apart, each part is made longer,
and they are joined. Here the whole becomes the past with more behind it, which `growing_caches` knows, and the parts
views of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from pyruntime.ir.expr import Expr, affine, guard, index, is_view
from pyruntime.ir.kernel import Block, Map, Tensor
from pyruntime.passes.fusion.map_fusion import substitute
from pyruntime.passes.views.reshaped_views import Joined, in_base


class Traced(Protocol):
    block: Block
    feeds: list[Any]
    outputs: dict[str, Any]


@dataclass(slots=True)
class _Part:
    """Keys or values: the map that makes them longer, and by indices of the whole where the past ends, element of the
    past, and what is behind it."""

    kernel: Map
    inside: Expr
    old: Expr
    new: Expr


def join_stacked(traced: Traced) -> None:
    """In a program whose kernels all work in linear memory."""
    feeds = {f.tensor.uid for f in traced.feeds}
    for out in traced.outputs.values():
        if isinstance(out, Tensor) and isinstance(out.kernel, Map) and out.rank > 1:
            parts = _parts(out.kernel, feeds)
            if parts is not None:
                _join(traced.block, out.kernel, parts)


def _parts(whole: Map, feeds: set[int]) -> tuple[_Part, _Part] | None:
    e = whole.expr
    if e.op != "guard" or e.args[0].key() != (index(0) < 1).key():
        return None
    first, second = (_part(x, n, whole.out.rank) for n, x in enumerate(e.args[1:]))
    if first is None or second is None or first.kernel is second.kernel:
        return None
    alike = first.inside.key() == second.inside.key() and first.old.value is second.old.value
    return (first, second) if alike and first.old.value.uid in feeds else None


def _part(load: Expr, n: int, rank: int) -> _Part | None:
    """Part n of a tensor of this rank, if it is made longer by a map of its own."""
    load = through(load)
    rest = [index(axis).key() for axis in range(1, rank)]
    if load.op != "at" or not isinstance(load.value.kernel, Map) or [x.key() for x in load.args] != rest:
        return None
    grown = substitute(load.value.kernel.expr, load.args)
    if grown.op != "guard":
        return None
    inside, old, new = grown.args
    old = through(old)
    if old.op != "at" or old.value.rank != rank or [x.key() for x in old.args[1:]] != rest:
        return None
    return _Part(load.value.kernel, inside, old, new) if affine(old.args[0]) == (n, {}) else None


def through(load: Expr) -> Expr:
    """A load of what a tensor is a view of."""
    joined = Joined()
    while load.op == "at":
        kernel = load.value.kernel
        viewed = isinstance(kernel, Map) and kernel.expr.op == "at" and is_view(kernel.expr)
        inner = substitute(kernel.expr, load.args) if viewed else in_base(load, joined)
        if inner is None:
            break
        load = inner
    return load


def _join(block: Block, whole: Map, parts: tuple[_Part, _Part]) -> None:
    """All is made where the second part was, if nothing reads the first one before."""
    kernels = block.kernels
    try:
        begin, end = sorted(kernels.index(p.kernel) for p in parts)
        kernels.index(whole, end)
    except ValueError:  # in another block
        return
    early = kernels[begin].out
    if any(t is early for k in kernels[begin + 1 : end] for t in k.inputs) or any(k.blocks for k in kernels[begin:end]):
        return
    first, second = parts
    own = [index(n) for n in range(whole.out.rank)]
    whole.expr = guard(first.inside, first.old.value.at(*own), guard(index(0) < 1, first.new, second.new))
    for n, part in enumerate(parts):
        part.kernel.expr = whole.out.at(n, *own[:-1])
    kernels.remove(whole)
    kernels[begin : end + 1] = [*kernels[begin + 1 : end], whole, kernels[begin], kernels[end]]


__all__ = ["join_stacked", "through"]
