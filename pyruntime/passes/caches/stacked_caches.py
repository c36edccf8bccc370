"""Grows a KV cache that holds keys and values in one tensor, [2, batch, heads, positions, size].

ONNX Runtime's tools export decoders with such caches: the graph splits the past into keys and values, appends to each,
and joins them. This pass rewrites that as one append to the whole tensor, which `growing_caches` recognises, and makes
keys and values views of the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.ir.expr import Expr, affine, guard, index, substitute
from pyruntime.ir.kernel import Block, Map, Tensor
from pyruntime.passes.caches.growing_caches import Traced
from pyruntime.passes.loads import through_views


@dataclass(slots=True)
class _Part:
    """Keys or values. kernel: the map that appends to them; inside, old, new: whether an element lies in the past, the
    element of the past, and the appended element, all by indices of the whole tensor."""

    kernel: Map
    inside: Expr
    old: Expr
    new: Expr


def join_stacked(traced: Traced) -> None:
    """Rewrite the outputs that join two such parts."""
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
    same_past = first.inside.key() == second.inside.key() and first.old.value is second.old.value
    return (first, second) if same_past and first.old.value.uid in feeds else None


def _part(load: Expr, n: int, rank: int) -> _Part | None:
    """Return part n of a tensor of this rank, if a separate map appends to this part."""
    load = through_views(load)
    rest = [index(axis).key() for axis in range(1, rank)]
    if load.op != "at" or not isinstance(load.value.kernel, Map) or [x.key() for x in load.args] != rest:
        return None
    appended = substitute(load.value.kernel.expr, load.args)
    if appended.op != "guard":
        return None
    inside, old, new = appended.args
    old = through_views(old)
    if old.op != "at" or old.value.rank != rank or [x.key() for x in old.args[1:]] != rest:
        return None
    return _Part(load.value.kernel, inside, old, new) if affine(old.args[0]) == (n, {}) else None


def _join(block: Block, whole: Map, parts: tuple[_Part, _Part]) -> None:
    """Compute the whole where the second part was computed, unless a kernel in between reads the first part."""
    kernels = block.kernels
    try:
        begin, end = sorted(kernels.index(p.kernel) for p in parts)
        kernels.index(whole, end)
    except ValueError:  # made in another block
        return
    first_out = kernels[begin].out
    if any(t is first_out for k in kernels[begin + 1 : end] for t in k.inputs) or any(
        k.blocks for k in kernels[begin:end]
    ):
        return
    first, second = parts
    own = [index(n) for n in range(whole.out.rank)]
    whole.expr = guard(first.inside, first.old.value.at(*own), guard(index(0) < 1, first.new, second.new))
    for n, part in enumerate(parts):
        part.kernel.expr = whole.out.at(n, *own[:-1])
    kernels.remove(whole)
    kernels[begin : end + 1] = [*kernels[begin + 1 : end], whole, kernels[begin], kernels[end]]
