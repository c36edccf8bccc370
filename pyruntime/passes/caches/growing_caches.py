"""Caches that a run makes longer: the feed comes to lie where the output wants it, and only what is new is written.

An output is a feed with more behind it along one axis where decoders have past keys and present ones: Concat in what
exporters write, and GroupQueryAttention. Or it is as long, with some of its rows written over: TensorScatter, and Where
by a mask of rows. Such a feed enters a buffer with room for the whole output (`places` along the axis); the output is
that buffer. What reads the past or the present reads through a view of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import readers_of
from pyruntime.ir.expr import Expr, const, dim, index, rewrite, walk
from pyruntime.ir.kernel import Block, Builder, Leaf, Loops, Map, Tensor, tensors_in
from pyruntime.ir.room import Room
from pyruntime.ir.shape import AnyDim, Shape
from pyruntime.ir.symbol import ROOM, Symbol
from pyruntime.passes.caches.stacked_caches import through


class Feed(Protocol):
    path: Any
    tensor: Tensor
    room: Room | None


class Traced(Protocol):
    """The parts of a traced graph that this pass changes (frontend/trace_graph.py)."""

    block: Block
    feeds: list[Any]
    outputs: dict[str, Any]
    guards: list[tuple[Any, str, str]]
    rooms: dict[int, Room]


@dataclass(slots=True)
class _Cache:
    """present[i] is `new` where `fresh` holds, else the feed's [i] where i[axis] is less than `past`, else `beyond`."""

    feed: Feed
    present: Map
    axis: int
    fresh: Expr | None
    new: Expr
    beyond: Expr

    @property
    def past(self) -> AnyDim:
        return self.feed.tensor.shape[self.axis]

    @property
    def reads_past(self) -> bool:
        """Whether what is fresh, which may lie in the past, is made of that, as RotaryEmbedding's features are."""
        return self.fresh is not None and self.feed.tensor in tensors_in(self.new, self.fresh)


def grow_in_place(traced: Traced, outputs: Sequence[Tensor]) -> None:
    """In a program whose kernels all work in linear memory. outputs: all tensors that leave it."""
    feeds = {f.tensor.uid: f for f in traced.feeds if len(f.path) == 1 and f.tensor.dtype.bits >= 8}  # not strings
    made = {id(k) for k in traced.block.kernels}
    leaving = [t.uid for t in outputs]
    readers = readers_of(traced.block, ())
    for name, out in traced.outputs.items():
        if isinstance(out, Tensor) and id(out.kernel) in made and leaving.count(out.uid) == 1:
            found = _cache(out.kernel, feeds)
            if found is None or found.feed.tensor.uid in leaving:
                continue
            if found.fresh is None or (readers[found.feed.tensor.uid] == 1 and not found.reads_past):
                del feeds[found.feed.tensor.uid]
                _rewrite(traced, name, found)


# ── what is one ───────────────────────────────────────────────────────────────────────────────────────────────────


def _cache(kernel: object, feeds: dict[int, Feed]) -> _Cache | None:
    if not isinstance(kernel, Map) or kernel.expr.op not in ("guard", "select"):
        return None
    fresh, e = None, kernel.expr
    if (over := _written_over(kernel, feeds)) is not None or e.op == "select":
        return over
    if _kept(e.args[1], feeds) is None and e.args[2].op == "guard":
        fresh, e = e.args[0], e.args[2]
    feed = _kept(e.args[1], feeds)
    if feed is None or feed.tensor.rank != kernel.out.rank:
        return None
    axes = [n for n, (d, g) in enumerate(zip(feed.tensor.shape, kernel.out.shape, strict=True)) if d != g]
    if len(axes) != 1 or e.args[0].key() != (index(axes[0]) < dim(feed.tensor.shape[axes[0]])).key():
        return None
    if fresh is not None and any(x.op == "index" and x.value > axes[0] for x in walk(fresh)):
        return None
    found = _Cache(feed, kernel, axes[0], fresh, kernel.expr.args[1], e.args[2])
    return found if _places(found) is not None else None


def _written_over(kernel: Map, feeds: dict[int, Feed]) -> _Cache | None:
    """Of the feed's own shape, with fresh rows among its own along the last axis that says which they are."""
    fresh, new, old = kernel.expr.args
    if kernel.expr.op == "select":
        if _kept(old, feeds) is None:
            fresh, new, old = ~fresh, old, new
        fresh = rewrite(fresh, lambda x: through(x) if x.op == "at" else None)  # of a mask that is expanded
    feed = _kept(old, feeds)
    axes = [x.value for x in walk(fresh) if x.op == "index"]
    if feed is None or not axes or feed.tensor.shape != kernel.out.shape:
        return None
    if kernel.expr.op == "select" and max(axes) == kernel.out.rank - 1:  # elements, which are sooner copied than asked
        return None
    found = _Cache(feed, kernel, max(axes), fresh, new, const(0, kernel.out.dtype))
    return found if _places(found) is not None else None


def _kept(at: Expr, feeds: dict[int, Feed]) -> Feed | None:
    """The feed that is loaded at the output's own indices."""
    if at.op != "at" or at.value.uid not in feeds:
        return None
    own = all(a.op == "index" and a.value == n for n, a in enumerate(at.args))
    return feeds[at.value.uid] if own else None


def _places(cache: _Cache) -> AnyDim | None:
    """Room along the axis that is known before the run begins, and enough; None where there is none, or where it is a
    Concat's that no run decides on, whose consumers are better off with fixed strides."""
    total = cache.present.out.shape[cache.axis]
    if cache.fresh is not None and not _is_known(total):  # behind the past is no more than what is new
        new = cache.new
        if new.op != "at" or new.value.rank != cache.present.out.rank:
            return None
        total = cache.past + new.value.shape[cache.axis]
    return total if _is_known(total) and (cache.fresh is not None or sh.symbols(total)) else None


def _mixed(cache: _Cache) -> AnyDim | None:
    """How many fresh rows there are where they lie one behind the other, from a place on that other axes decide, and
    rows that are neither fresh nor past are 0; else as many as there are at all. None if they lie behind the past."""
    if cache.fresh is None:
        return None
    run = _run(cache)
    return cache.present.out.shape[cache.axis] if run is None else run[1]


def _run(cache: _Cache) -> tuple[Expr, AnyDim] | None:
    """Where fresh rows begin and how many there are, if they lie one behind the other and 0 is beyond."""
    fresh = cache.fresh
    if fresh is None or fresh.op != "and" or fresh.args[1].op != "lt":
        return None
    if cache.beyond.op != "const" or cache.beyond.value:
        return None
    place, rows = fresh.args[1].args
    own = place.op == "sub" and place.args[0].key() == index(cache.axis).key()
    if not own or any(x.op == "index" and x.value == cache.axis for x in walk(place.args[1])):
        return None
    known = rows.op in ("dim", "const") and fresh.key() == ((place >= 0) & (place < rows)).key()
    return (place.args[1], rows.value) if known else None


def _is_known(d: AnyDim) -> bool:
    return all(s.is_extent for s in sh.symbols(d))


# ── what becomes of it ────────────────────────────────────────────────────────────────────────────────────────────


def _rewrite(traced: Traced, name: str, cache: _Cache) -> None:
    """The feed enters the buffer, a procedure writes what is new there, and both tensors become views of it."""
    feed, out, axis = cache.feed, cache.present.out, cache.axis
    past, least = feed.tensor, _places(cache)
    assert least is not None
    leaf, places = leaf_with_room(feed, out.shape, axis)
    written = _procedure(cache, leaf.out)
    at = traced.block.kernels.index(cache.present)
    traced.block.kernels[at : at + 1] = [written, _view(out, written.out, cache.present.node)]
    traced.block.kernels.insert(0, _view(past, leaf.out, cache.present.node))
    feed.tensor, feed.room = leaf.out, Room(axis, places, past.shape, least, _mixed(cache))
    traced.outputs[name] = written.out
    traced.rooms[written.out.uid] = Room(axis, places, out.shape)
    fits = sh.compare("le", out.shape[axis], least)
    if fits != 1:
        text = f'output "{name}" is longer than the past and what is new'
        traced.guards.append((fits, text, cache.present.node))


def leaf_with_room(feed: Feed, shape: Shape, axis: int) -> tuple[Leaf, AnyDim]:
    """A feed's buffer of this shape, but for its places along an axis; and those."""
    places = sh.dim_of(Symbol(ROOM, feed.path[0], (axis,)))
    leaf = Leaf("feed", feed.path)
    leaf.outputs = (Tensor((*shape[:axis], places, *shape[axis + 1 :]), feed.tensor.dtype, leaf, 0, feed.tensor.name),)
    return leaf, places


def _procedure(cache: _Cache, room: Tensor) -> Loops:
    """Writes what is not in the feed to its place: fresh rows, and those behind the past."""
    out, axis, new = cache.present.out, cache.axis, cache.new
    made = Loops("append", (), (), [], base=room)
    made.node, made.outputs = cache.present.node, (Tensor(room.shape, out.dtype, made, 0, out.name),)
    total, fresh = out.shape[axis], cache.fresh
    k = Builder()

    def write(e: Expr, row: Expr, where: Expr | None = None) -> None:
        """A row, where that holds."""
        with ExitStack() as nest:
            if where is not None:
                nest.enter_context(k.when(_at(where, (*lead, row))))
            rest = out.shape[axis + 1 :]
            kinds = [*["serial"] * (len(rest) - 1), "vector"]
            at = (*lead, row, *[nest.enter_context(k.loop(dim(d), kind)) for d, kind in zip(rest, kinds, strict=False)])
            k.store(made.out, at, _at(e, at))

    with ExitStack() as nest:
        lead = [nest.enter_context(k.parallel(dim(d))) for d in out.shape[:axis]]
        run = _run(cache)
        if fresh is None or run is not None:
            with k.loop(dim(total - cache.past)) as n:
                write(cache.beyond, n + dim(cache.past), None if fresh is None else ~fresh)
        if run is not None:  # not each row is asked whether it is fresh: 15 us for 3,000 of them (natively, by hand)
            with k.loop(dim(run[1])) as n:
                row = n + _at(run[0], tuple(lead))
                write(new, row, (index(axis) >= 0) & (index(axis) < dim(total)))
        elif fresh is not None:
            more = total != cache.past
            with k.loop(dim(total)) as row:
                whole = Expr("guard", (fresh, new, cache.beyond), new.dtype) if more else new
                write(whole, row, fresh | (index(axis) >= dim(cache.past)) if more else fresh)
    made.body = k.body
    read = [cache.beyond] if fresh is None else [fresh, new, cache.beyond]  # what is past lies there
    made.args = (room, *[t for t in tensors_in(*read) if t is not room])
    return made


def _at(e: Expr, where: tuple[Expr, ...]) -> Expr:
    return rewrite(e, lambda x: where[x.value] if x.op == "index" else None)


def _view(t: Tensor, base: Tensor, node: str) -> Map:
    """Makes a tensor the first part of another."""
    return view_of(t, base.at(*[index(n) for n in range(t.rank)]), node)


def view_of(t: Tensor, load: Expr, node: str) -> Map:
    """Makes a tensor elements of another."""
    view = Map(load)
    view.node, view.outputs = node, (t,)
    t.kernel = view
    return view


__all__ = ["Feed", "Traced", "grow_in_place", "leaf_with_room", "view_of"]
