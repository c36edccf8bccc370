"""Grows KV caches in place: the feed lies in the buffer of the output, and a run writes only the new rows.

In decoders an output (the present keys or values) is often a feed (the past) with rows appended along one axis, by
Concat in exported graphs or by GroupQueryAttention; or with some rows overwritten, by TensorScatter or by Where with a
mask of rows. This pass makes the executor place such a feed in a buffer with capacity for the
whole output (`places` along the axis), and the output is that buffer. Kernels that read the past or the present read
views of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import readers_of
from pyruntime.ir.expr import Expr, const, dim, index, rem, rewrite, select, substitute, walk
from pyruntime.ir.kernel import Block, Builder, Leaf, Loops, Map, Tensor, tensors_in
from pyruntime.ir.room import Room
from pyruntime.ir.shape import AnyDim, Shape
from pyruntime.ir.symbol import ROOM, Symbol
from pyruntime.passes.loads import through_views, view_of

BITS = 30  # of a number of rows: dims of Programs that use the GPU are below 2^30


class Feed(Protocol):
    path: Any
    tensor: Tensor
    room: Room | None


class Traced(Protocol):
    """The parts of a traced graph that this pass changes (frontend/trace_graph.py)."""

    block: Block
    feeds: list[Any]
    outputs: dict[str, Any]
    guards: list[Any]
    rooms: dict[int, Room]


@dataclass(slots=True)
class _Cache:
    """A present cache: present[i] = new if fresh, else past[i] if i[axis] < length of the past, else beyond."""

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
        """Whether new rows, which may overwrite the past, are computed from it, as by RotaryEmbedding."""
        return self.fresh is not None and self.feed.tensor in tensors_in(self.new, self.fresh)


def grow_in_place(traced: Traced, outputs: Sequence[Tensor], at_once: bool = False) -> None:
    """Rewrite the caches among a graph's outputs. outputs: all tensors that leave the Program; at_once: kernels run on
    a GPU, so each new element is a work unit."""
    feeds = {f.tensor.uid: f for f in traced.feeds if len(f.path) == 1 and f.tensor.dtype.bits >= 8}  # not strings
    in_main = {id(k) for k in traced.block.kernels}
    output_uids = [t.uid for t in outputs]
    readers = readers_of(traced.block, ())
    for name, out in traced.outputs.items():
        if isinstance(out, Tensor) and id(out.kernel) in in_main and output_uids.count(out.uid) == 1:
            cache = _cache(out.kernel, feeds)
            if cache is None or cache.feed.tensor.uid in output_uids:
                continue
            if cache.fresh is None or (readers[cache.feed.tensor.uid] == 1 and not cache.reads_past):
                del feeds[cache.feed.tensor.uid]
                _rewrite(traced, name, cache, at_once)


# ── recognising caches ────────────────────────────────────────────────────────────────────────────────────────────


def _cache(kernel: object, feeds: dict[int, Feed]) -> _Cache | None:
    if not isinstance(kernel, Map) or kernel.expr.op not in ("guard", "select"):
        return None
    fresh, e = None, kernel.expr
    if (overwritten := _overwritten(kernel, feeds)) is not None or e.op == "select":
        return overwritten
    if _feed_at_own_index(e.args[1], feeds) is None and e.args[2].op == "guard":
        fresh, e = e.args[0], e.args[2]
    feed = _feed_at_own_index(e.args[1], feeds)
    if feed is None or feed.tensor.rank != kernel.out.rank:
        return None
    axes = [n for n, (d, g) in enumerate(zip(feed.tensor.shape, kernel.out.shape, strict=True)) if d != g]
    if len(axes) != 1 or e.args[0].key() != (index(axes[0]) < dim(feed.tensor.shape[axes[0]])).key():
        return None
    if fresh is not None and any(x.op == "index" and x.value > axes[0] for x in walk(fresh)):
        return None
    cache = _Cache(feed, kernel, axes[0], fresh, kernel.expr.args[1], e.args[2])
    return cache if _places(cache) is not None else None


def _overwritten(kernel: Map, feeds: dict[int, Feed]) -> _Cache | None:
    """A cache of the feed's shape in which new rows replace old ones. Its axis is the last one that `fresh` uses."""
    fresh, new, old = kernel.expr.args
    if kernel.expr.op == "select":
        if _feed_at_own_index(old, feeds) is None:
            fresh, new, old = ~fresh, old, new
        fresh = rewrite(fresh, lambda x: through_views(x) if x.op == "at" else None)  # the mask before Expand
    feed = _feed_at_own_index(old, feeds)
    axes = [x.value for x in walk(fresh) if x.op == "index"]
    if feed is None or not axes or feed.tensor.shape != kernel.out.shape:
        return None
    if kernel.expr.op == "select" and max(axes) == kernel.out.rank - 1:  # a mask of elements: copying costs less
        return None
    cache = _Cache(feed, kernel, max(axes), fresh, new, const(0, kernel.out.dtype))
    return cache if _places(cache) is not None else None


def _feed_at_own_index(at: Expr, feeds: dict[int, Feed]) -> Feed | None:
    """The feed of which `at` loads the element at the output's own indices; None for any other load."""
    if at.op != "at" or at.value.uid not in feeds:
        return None
    at_own_index = all(a.op == "index" and a.value == n for n, a in enumerate(at.args))
    return feeds[at.value.uid] if at_own_index else None


def _places(cache: _Cache) -> AnyDim | None:
    """A capacity along the axis that suffices and that the dims of the feeds determine. None if there is no such bound,
    or if the length is static after a Concat: fixed strides then serve its consumers better."""
    total = cache.present.out.shape[cache.axis]
    if cache.fresh is not None and not _depends_on_feeds(total):  # upper bound: all new rows follow the past
        new = cache.new
        if new.op != "at" or new.value.rank != cache.present.out.rank:
            return None
        total = cache.past + new.value.shape[cache.axis]
    return total if _depends_on_feeds(total) and (cache.fresh is not None or sh.symbols(total)) else None


def _mixed(cache: _Cache) -> AnyDim | None:
    """Number of new rows if they are contiguous and rows that are neither new nor past are 0; else the length of the
    whole axis. None if all new rows follow the past."""
    if cache.fresh is None:
        return None
    contiguous = _contiguous_rows(cache)
    return cache.present.out.shape[cache.axis] if contiguous is None else contiguous[1]


def _contiguous_rows(cache: _Cache) -> tuple[Expr, AnyDim] | None:
    """First index and number of the new rows, if they are contiguous and all rows beyond them are 0."""
    fresh = cache.fresh
    if fresh is None or fresh.op != "and" or fresh.args[1].op != "lt":
        return None
    if cache.beyond.op != "const" or cache.beyond.value:
        return None
    place, rows = fresh.args[1].args
    is_offset = place.op == "sub" and place.args[0].key() == index(cache.axis).key()
    if not is_offset or any(x.op == "index" and x.value == cache.axis for x in walk(place.args[1])):
        return None
    is_range = rows.op in ("dim", "const") and fresh.key() == ((place >= 0) & (place < rows)).key()
    return (place.args[1], rows.value) if is_range else None


def _undo(cache: _Cache) -> AnyDim | None:
    """The number of rows at the end of the buffer in which a run keeps what its new rows overwrite: first the old rows,
    then the end of the new rows in binary, one element for each of BITS bits. None if the run keeps nothing."""
    contiguous, inner = _contiguous_rows(cache), sh.size(cache.present.out.shape[cache.axis + 1 :])
    if contiguous is None or not isinstance(inner, int) or not inner:
        return None
    return contiguous[1] + _rows_of_bits(cache.present.out, cache.axis)


def _rows_of_bits(t: Tensor, axis: int) -> int:
    inner = sh.size(t.shape[axis + 1 :])
    assert isinstance(inner, int)
    return -(-BITS // inner)


def _depends_on_feeds(d: AnyDim) -> bool:
    return all(s.is_extent for s in sh.symbols(d))


# ── rewriting them ────────────────────────────────────────────────────────────────────────────────────────────────


def _rewrite(traced: Traced, name: str, cache: _Cache, at_once: bool) -> None:
    """Place the feed in the output's buffer, write new rows by a procedure, and make past and present views of it."""
    feed, out, axis = cache.feed, cache.present.out, cache.axis
    past, least = feed.tensor, _places(cache)
    assert least is not None
    leaf, places = leaf_with_capacity(feed, out.shape, axis)
    written = _append(cache, leaf.out, at_once)
    at = traced.block.kernels.index(cache.present)
    traced.block.kernels[at : at + 1] = [written, _view(out, written.out, cache.present.node)]
    traced.block.kernels.insert(0, _view(past, leaf.out, cache.present.node))
    undo = _undo(cache) if at_once else None
    feed.tensor, feed.room = leaf.out, Room(axis, places, past.shape, least, _mixed(cache), undo)
    traced.outputs[name] = written.out
    traced.rooms[written.out.uid] = Room(axis, places, out.shape)
    fits = sh.compare("le", out.shape[axis], least)
    if fits != 1:
        text = f'output "{name}" is longer than the past and the new rows'
        traced.guards.append((fits, text, cache.present.node))


def leaf_with_capacity(feed: Feed, shape: Shape, axis: int) -> tuple[Leaf, AnyDim]:
    """A leaf of this shape for a feed, with a symbol for the capacity along an axis; and that symbol."""
    places = sh.dim_of(Symbol(ROOM, feed.path[0], (axis,)))
    leaf = Leaf("feed", feed.path)
    leaf.outputs = (Tensor((*shape[:axis], places, *shape[axis + 1 :]), feed.tensor.dtype, leaf, 0, feed.tensor.name),)
    return leaf, places


def _append(cache: _Cache, room: Tensor, at_once: bool) -> Loops:
    """A procedure that writes the rows that the feed lacks into the buffer `room`: new rows and rows beyond the past.
    at_once: each element is a work unit."""
    w = _Writer(cache, room, at_once)
    total, fresh = cache.present.out.shape[cache.axis], cache.fresh
    contiguous = _contiguous_rows(cache)
    if contiguous is not None and at_once:
        return w.procedure(lambda: w.new_or_beyond(*contiguous))

    def parts() -> None:
        if fresh is None or contiguous is not None:
            w.rows(total - cache.past, cache.past, cache.beyond, None if fresh is None else ~fresh)
        # testing whether each row is new took 15 us for 3,000 rows (natively, timed by hand)
        if contiguous is not None:
            w.rows(contiguous[1], contiguous[0], cache.new, w.is_inside())
        elif fresh is not None:
            more = total != cache.past
            whole = Expr("guard", (fresh, cache.new, cache.beyond), cache.new.dtype) if more else cache.new
            w.rows(total, 0, whole, fresh | (index(cache.axis) >= dim(cache.past)) if more else fresh)

    return w.procedure(parts)


class _Writer:
    """Writes the body of a procedure that stores rows into a buffer. at_once: each element is a work unit."""

    def __init__(self, cache: _Cache, room: Tensor, at_once: bool = False) -> None:
        self.cache = cache
        self.room = room
        self.at_once = at_once
        self.k = Builder()
        self.made = Loops("append", (), (), [], bases=(room,))
        out = Tensor(room.shape, cache.present.out.dtype, self.made, 0, cache.present.out.name)
        self.made.node, self.made.outputs = cache.present.node, (out,)
        self.lead: list[Expr] = []
        self.read: list[Expr] = []

    def procedure(self, write: Callable[[], None]) -> Loops:
        made = self.made
        with ExitStack() as nest:
            if not self.at_once:
                self.lead = [nest.enter_context(self.k.parallel(dim(d))) for d in made.out.shape[: self.cache.axis]]
            write()
        made.body = self.k.body
        # the past is in the buffer
        made.args = (self.room, *[t for t in tensors_in(*self.read) if t is not self.room])
        return made

    def is_inside(self) -> Expr:
        """Whether a row is one of the present."""
        row = index(self.cache.axis)
        return (row >= 0) & (row < dim(self.cache.present.out.shape[self.cache.axis]))

    def new_or_beyond(self, first: Expr, count: AnyDim) -> None:
        """Write `count` new rows from the row `first` on, and the rows after the past that are not new."""
        cache = self.cache
        assert cache.fresh is not None
        axis, past = cache.axis, dim(cache.past)
        more = cache.present.out.shape[axis] - cache.past
        with ExitStack() as nest:
            lead, n, inner = self.unit(nest, count + more)
            is_new = n < dim(count)
            row = select(is_new, n + substitute(first, tuple(lead)), n - dim(count) + past)
            at = (*lead, row, *inner)
            here = (*lead, row)
            inside, fresh = (substitute(e, here) for e in (self.is_inside(), cache.fresh))
            nest.enter_context(self.k.when((is_new & inside) | (~is_new & ~fresh)))
            value = Expr("guard", (is_new, substitute(cache.new, at), cache.beyond), cache.new.dtype)
            self.read += [value, *here, inside, fresh]
            undo = _undo(cache)
            if undo is not None:
                self.keep(undo, at, n, is_new, here[-1] + dim(count))
            self.k.store(self.made.out, at, value)

    def keep(self, undo: AnyDim, at: Sequence[Expr], n: Expr, is_new: Expr, end: Expr) -> None:
        """Copy an element that new row n is about to overwrite, at these coordinates, behind the present (see `_undo`).
        end: of the new rows"""
        axis, out = self.cache.axis, self.made.out
        places, inner = out.shape[axis], at[axis + 1 :]
        enough = dim(self.cache.present.out.shape[axis] + undo) <= dim(places)
        with self.k.when(is_new & enough):
            self.k.store(out, (*at[:axis], dim(places - undo) + n, *inner), self.room.at(*at))
            first = n == 0
            for i in inner:
                first = first & (i == 0)
            with self.k.when(first), self.k.loop(BITS) as bit:
                extents = (_rows_of_bits(out, axis), *out.shape[axis + 1 :])
                row, *place = _coordinates(bit, extents)
                is_set = ((end >> bit) & 1) != 0
                where = (*at[:axis], dim(places - extents[0]) + row, *place)
                self.k.store(out, where, select(is_set, const(1, out.dtype), const(0, out.dtype)))

    def unit(self, nest: ExitStack, count: AnyDim) -> tuple[list[Expr], Expr, list[Expr]]:
        """The coordinates before, on and after the axis of one element of `count` rows, which is a work unit."""
        shape, axis = self.made.out.shape, self.cache.axis
        extents = (*shape[:axis], count, *shape[axis + 1 :])
        at = _coordinates(nest.enter_context(self.k.parallel(dim(sh.size(extents)))), extents)
        return at[:axis], at[axis], at[axis + 1 :]

    def rows(self, count: AnyDim, first: AnyDim | Expr, e: Expr, where: Expr | None) -> None:
        """Write e to `count` rows from the row `first` on, if `where` holds."""
        k, made = self.k, self.made
        self.read += [x for x in (where, first, e) if isinstance(x, Expr)]
        rest = made.out.shape[self.cache.axis + 1 :]
        with ExitStack() as nest:
            if self.at_once:
                self.lead, n, inner = self.unit(nest, count)
            else:
                n = nest.enter_context(k.loop(dim(count)))
            row = n + (substitute(first, tuple(self.lead)) if isinstance(first, Expr) else dim(first))
            if where is not None:
                nest.enter_context(k.when(substitute(where, (*self.lead, row))))
            if not self.at_once:
                kinds = [*["serial"] * (len(rest) - 1), "vector"]
                inner = [nest.enter_context(k.loop(dim(d), kind)) for d, kind in zip(rest, kinds, strict=False)]
            at = (*self.lead, row, *inner)
            k.store(made.out, at, substitute(e, at))


def _coordinates(n: Expr, extents: Sequence[AnyDim]) -> list[Expr]:
    """Those of element n of a tensor with these extents."""
    found: list[Expr] = []
    for d in reversed(extents[1:]):
        found.insert(0, rem(n, dim(d)))
        n = n / dim(d)
    return [n, *found]


def _view(t: Tensor, base: Tensor, node: str) -> Map:
    """Make `t` the first part of `base`."""
    return view_of(t, base.at(*[index(n) for n in range(t.rank)]), node)
