"""Caches of a fixed size that ScatterND or ScatterElements write: what is scattered is written into the feed's buffer.

Both operators are a procedure that copies its data and then writes what is new. Where the data are a feed that nothing
else reads, and the result is an output, the copy is left out: the feed enters a buffer that the output takes over.
Between feed and data may be reshapes, a transpose that the output takes back, and other such procedures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyruntime.codegen.loop_ir import children, expressions, rebuild
from pyruntime.ir.blocks import readers_of
from pyruntime.ir.expr import Expr, dim, index, rewrite, walk
from pyruntime.ir.kernel import Alias, For, Kernel, Loops, Map, Stmt, Store, Tensor, root
from pyruntime.ir.room import Room
from pyruntime.passes.caches.growing_caches import Feed, Traced, leaf_with_room, view_of
from pyruntime.passes.fusion.map_fusion import substitute
from pyruntime.passes.views.reshaped_views import Joined, in_base


@dataclass(slots=True)
class _Scatter:
    """A procedure, its body without the copy, and the data that it copied."""

    kernel: Loops
    body: list[Stmt]
    data: Tensor


@dataclass(slots=True)
class _Cache:
    """The output is the feed after these procedures, the last one first. views: kernels between the feed and what they
    write. turned: of one procedure, tensors whose elements are the feed's in another order, each with its element's
    place there: what it makes, and that before the output is transposed."""

    feed: Feed
    out: Tensor
    scatters: list[_Scatter]
    views: list[Kernel]
    turned: list[tuple[Tensor, Expr]]


def scatter_in_place(traced: Traced, outputs: Sequence[Tensor]) -> None:
    """In a program whose kernels all work in linear memory. outputs: all tensors that leave it."""
    reads, leaving = _Reads(traced, outputs), Counter([root(t).uid for t in outputs])
    for name, out in traced.outputs.items():
        found = _cache(out, reads) if isinstance(out, Tensor) and leaving[root(out).uid] == 1 else None
        if found is not None:
            _rewrite(traced, name, found)


# ── what is one ───────────────────────────────────────────────────────────────────────────────────────────────────


class _Reads:
    """Which tensors one kernel alone reads, and which of them are feeds that may enter a buffer."""

    def __init__(self, traced: Traced, outputs: Sequence[Tensor]) -> None:
        self.readers = readers_of(traced.block, outputs)
        self.made = {id(k) for k in traced.block.kernels}
        self.feeds = {f.tensor.uid: f for f in traced.feeds if _enters(f)}

    def feed(self, t: Tensor) -> Feed | None:
        return self.feeds.get(t.uid) if self.readers[t.uid] == 1 else None

    def once(self, kernel: Kernel) -> bool:
        """Whether it is of the main block, and what it makes is read by one kernel."""
        return id(kernel) in self.made and self.readers[kernel.out.uid] == 1


def _enters(feed: Feed) -> bool:
    return len(feed.path) == 1 and feed.room is None and feed.tensor.dtype.bits >= 8 and feed.tensor.rank > 0


def _cache(out: Tensor, reads: _Reads) -> _Cache | None:
    back = _transposed(out)
    t = out if back is None else back.value
    while isinstance(t.kernel, Alias):
        t = t.kernel.base
    scatters: list[_Scatter] = []
    views: list[Kernel] = []
    while id(t.kernel) in reads.made and (scatter := _scatter(t.kernel)) is not None:
        scatters.append(scatter)
        t = scatter.data
        while isinstance(t.kernel, Alias) and reads.once(t.kernel):
            views.append(t.kernel)
            t = t.kernel.base
        if reads.readers[t.uid] != 1:
            return None
    if not scatters:
        return None
    if back is not None:
        return _turned(back, out, scatters, [*views, t.kernel], reads)
    feed = reads.feed(t)
    return _Cache(feed, out, scatters, views, []) if feed is not None and feed.tensor.shape == out.shape else None


def _turned(back: Expr, out: Tensor, scatters: list[_Scatter], views: list[Kernel], reads: _Reads) -> _Cache | None:
    """Where the output is a transpose, and so is the last of the views."""
    before, result = views[-1].out, back.value
    there = _transposed(before)
    if there is None or len(scatters) > 1 or before.shape != result.shape or not reads.once(before.kernel):
        return None
    feed, place = reads.feed(there.value), _place(scatters[0].data)
    own = [index(n).key() for n in range(out.rank)]
    if feed is None or place is None or [x.key() for x in substitute(there, back.args).args] != own:
        return None
    turned = {t.uid: (t, e) for t, e in ((scatters[0].kernel.out, place), (result, there))}
    return _Cache(feed, out, scatters, views, list(turned.values())) if id(result.kernel) in reads.made else None


def _transposed(t: Tensor) -> Expr | None:
    """The load that a tensor's map is, if that orders axes alone."""
    e = t.kernel.expr if isinstance(t.kernel, Map) else None
    if e is None or e.op != "at" or e.value.rank != t.rank or any(x.op != "index" for x in e.args):
        return None
    alike = all(d == t.shape[x.value] for d, x in zip(e.value.shape, e.args, strict=True))
    return e if alike and len({x.value for x in e.args}) == t.rank else None


def _place(data: Tensor) -> Expr | None:
    """The element of a feed that one of data is, which are a reshape of a transpose of it."""
    load: Expr | None = data.at(*[index(n) for n in range(data.rank)])
    joined = Joined()
    while load is not None and isinstance(load.value.kernel, Alias):
        load = in_base(load, joined)
    return None if load is None else substitute(load.value.kernel.expr, load.args)


def _scatter(kernel: Kernel) -> _Scatter | None:
    """A procedure that copies one of its arguments and then does not read it."""
    if not isinstance(kernel, Loops) or len(kernel.outputs) != 1 or kernel.base is not None or kernel.unit_is_row:
        return None
    for data in kernel.args:
        rest = _without_copy(kernel.body, [], kernel.out, data) if data.shape == kernel.out.shape else None
        if rest and not _loads(rest, data):
            return _Scatter(kernel, rest, data)
    return None


def _without_copy(body: list[Stmt], outer: list[Expr], out: Tensor, data: Tensor) -> list[Stmt] | None:
    """What is behind loops over the axes from len(outer) on that copy data; None if it does not begin with those."""
    first, *rest = body
    if not isinstance(first, For) or first.extent.key() != dim(out.shape[len(outer)]).key():
        return None
    at = [*outer, Expr("var", (), first.extent.dtype, first.var)]
    if len(at) == out.rank:
        return rest if _copies(first.body, out.at(*at), data.at(*at)) else None
    inner = _without_copy(first.body, at, out, data)
    if not inner:
        return None if inner is None else rest
    return [replace(first, body=inner), *rest] if first.kind == "parallel" else None  # no part writes another's


def _copies(body: list[Stmt], to: Expr, element: Expr) -> bool:
    if len(body) != 1 or not isinstance(body[0], Store) or body[0].target is not to.value:
        return False
    return [c.key() for c in body[0].coords] == [c.key() for c in to.args] and body[0].value.key() == element.key()


def _loads(body: list[Stmt], t: Tensor) -> bool:
    own = any(x.op == "at" and x.value is t for s in body for e in expressions(s) for x in walk(e))
    return own or any(_loads(inner, t) for s in body for inner in children(s))


# ── what becomes of it ────────────────────────────────────────────────────────────────────────────────────────────


def _rewrite(traced: Traced, name: str, cache: _Cache) -> None:
    """The feed enters the buffer. Its rows along the first axis are the buffer's, so strides are as they were."""
    feed, past = cache.feed, cache.feed.tensor
    gone = {id(k) for k in cache.views}
    traced.block.kernels[:] = [k for k in traced.block.kernels if id(k) not in gone]
    leaf, places = leaf_with_room(feed, past.shape, 0)
    base = leaf.out
    for s in reversed(cache.scatters):
        s.kernel.args = (base, *[t for t in s.kernel.args if t is not s.data])
        s.kernel.base, s.kernel.body = base, s.body
        base = s.kernel.out
    out = cache.out
    if cache.turned:
        out = traced.outputs[name] = _moved(traced, cache.scatters[0].kernel, cache.turned, leaf.out)
    feed.tensor, feed.room = leaf.out, Room(0, places, past.shape, past.shape[0], past.shape[0])
    traced.rooms[out.uid] = Room(0, places, out.shape)


def _moved(traced: Traced, kernel: Loops, turned: list[tuple[Tensor, Expr]], room: Tensor) -> Tensor:
    """The procedure writes to the places that its elements have there; what it made becomes a view of that."""
    old, place = turned[0]
    new = Tensor(room.shape, old.dtype, kernel, 0, old.name)

    def load(e: Expr) -> Expr | None:
        return new.at(*substitute(place, e.args).args) if e.op == "at" and e.value is old else None

    def moved(s: Stmt) -> Stmt:
        s = rebuild(s, lambda e: rewrite(e, load), lambda body: [moved(inner) for inner in body])
        return Store(new, substitute(place, s.coords).args, s.value) if isinstance(s, Store) and s.target is old else s

    kernels = traced.block.kernels
    for t, e in turned:
        at = next(n for n, k in enumerate(kernels) if k is t.kernel)
        kernels[at : at + 1] = [*([kernel] if t is old else []), view_of(t, new.at(*e.args), kernel.node)]
    kernel.outputs, kernel.body = (new,), [moved(s) for s in kernel.body]
    return new


__all__ = ["scatter_in_place"]
