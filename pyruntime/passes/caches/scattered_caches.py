"""KV caches of a fixed size that ScatterND or ScatterElements write: the operators write into the feed's buffer.

Both operators are a procedure that copies its data and then overwrites some elements. If the data are a feed that
nothing else reads, and the result is an output, this pass removes the copy: the feed lies in the buffer of the output.
Reshapes, other such procedures, and a transpose that the output undoes may stand between the feed and the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyruntime.ir.blocks import readers_of
from pyruntime.ir.expr import Expr, dim, index, rewrite, substitute
from pyruntime.ir.kernel import Alias, For, Kernel, Loops, Map, Stmt, Store, Tensor, root
from pyruntime.ir.room import Room
from pyruntime.ir.statements import nodes, rebuild
from pyruntime.passes.caches.growing_caches import Feed, Traced, leaf_with_capacity
from pyruntime.passes.loads import through_views, view_of


@dataclass(slots=True)
class Scatter:
    """A scattering procedure. body: its statements without the copy; data: the tensor that it copied."""

    kernel: Loops
    body: list[Stmt]
    data: Tensor


@dataclass(slots=True)
class _Cache:
    """An output that procedures make by writing elements of a feed.

    scatters: the procedures, the last one first
    views: kernels between the feed and the tensors that the procedures write
    transposed: if a single procedure works on a transposed feed, the tensors with the feed's elements in another order
        (its result, and the result before the output is transposed back), each with a load of its element from the feed
    """

    feed: Feed
    out: Tensor
    scatters: list[Scatter]
    views: list[Kernel]
    transposed: list[tuple[Tensor, Expr]]


def scatter_in_place(traced: Traced, outputs: Sequence[Tensor]) -> None:
    """Rewrite the caches among a graph's outputs. outputs: all tensors that leave the Program."""
    reads, times_output = _Reads(traced, outputs), Counter([root(t).uid for t in outputs])
    for name, out in traced.outputs.items():
        cache = _cache(out, reads) if isinstance(out, Tensor) and times_output[root(out).uid] == 1 else None
        if cache is not None:
            _rewrite(traced, name, cache)


# ── recognising caches ────────────────────────────────────────────────────────────────────────────────────────────


class _Reads:
    """Finds the tensors that have a single reader, and the feeds that may lie in the buffer of an output."""

    def __init__(self, traced: Traced, outputs: Sequence[Tensor]) -> None:
        self.readers = readers_of(traced.block, outputs)
        self.in_main = {id(k) for k in traced.block.kernels}
        self.feeds = {f.tensor.uid: f for f in traced.feeds if _may_share_buffer(f)}

    def feed(self, t: Tensor) -> Feed | None:
        return self.feeds.get(t.uid) if self.readers[t.uid] == 1 else None

    def is_read_once(self, kernel: Kernel) -> bool:
        """Whether a kernel belongs to the main block and one kernel reads its result."""
        return id(kernel) in self.in_main and self.readers[kernel.out.uid] == 1


def _may_share_buffer(feed: Feed) -> bool:
    return len(feed.path) == 1 and feed.room is None and feed.tensor.dtype.bits >= 8 and feed.tensor.rank > 0


def _cache(out: Tensor, reads: _Reads) -> _Cache | None:
    back = _as_transpose(out)
    t = out if back is None else back.value
    while isinstance(t.kernel, Alias):
        t = t.kernel.base
    scatters: list[Scatter] = []
    views: list[Kernel] = []
    while id(t.kernel) in reads.in_main and (scatter := scatter_of(t.kernel)) is not None:
        scatters.append(scatter)
        t = scatter.data
        while isinstance(t.kernel, Alias) and reads.is_read_once(t.kernel):
            views.append(t.kernel)
            t = t.kernel.base
        if reads.readers[t.uid] != 1:
            return None
    if not scatters:
        return None
    if back is not None:
        return _transposed_cache(back, out, scatters, [*views, t.kernel], reads)
    feed = reads.feed(t)
    return _Cache(feed, out, scatters, views, []) if feed is not None and feed.tensor.shape == out.shape else None


def _transposed_cache(
    back: Expr, out: Tensor, scatters: list[Scatter], views: list[Kernel], reads: _Reads
) -> _Cache | None:
    """A cache that is transposed before the procedure and back after it."""
    before, result = views[-1].out, back.value
    source = _as_transpose(before)
    if source is None or len(scatters) > 1 or before.shape != result.shape or not reads.is_read_once(before.kernel):
        return None
    data = scatters[0].data  # a reshape of a transpose of the feed
    feed, load = reads.feed(source.value), through_views(data.at(*[index(n) for n in range(data.rank)]))
    identity = [index(n).key() for n in range(out.rank)]
    is_undone = [x.key() for x in substitute(source, back.args).args] == identity
    if feed is None or load.value is not source.value or not is_undone:
        return None
    transposed = {t.uid: (t, e) for t, e in ((scatters[0].kernel.out, load), (result, source))}
    return _Cache(feed, out, scatters, views, [*transposed.values()]) if id(result.kernel) in reads.in_main else None


def _as_transpose(t: Tensor) -> Expr | None:
    """The load of a map that only permutes axes; None for any other tensor."""
    e = t.kernel.expr if isinstance(t.kernel, Map) else None
    if e is None or e.op != "at" or e.value.rank != t.rank or any(x.op != "index" for x in e.args):
        return None
    same_extents = all(d == t.shape[x.value] for d, x in zip(e.value.shape, e.args, strict=True))
    return e if same_extents and len({x.value for x in e.args}) == t.rank else None


def scatter_of(kernel: Kernel) -> Scatter | None:
    """The kernel as a scattering procedure: one that copies an argument and does not read it afterwards."""
    if not isinstance(kernel, Loops) or len(kernel.outputs) != 1 or kernel.bases or kernel.unit_is_row:
        return None
    if not kernel.out.rank:  # such as the procedure of a loop
        return None
    for data in kernel.args:
        rest = _without_copy(kernel.body, [], kernel.out, data) if data.shape == kernel.out.shape else None
        if rest and not _loads(rest, data):
            return Scatter(kernel, rest, data)
    return None


def _without_copy(body: list[Stmt], outer: list[Expr], out: Tensor, data: Tensor) -> list[Stmt] | None:
    """The statements after the loops that copy `data`, which run over the axes from len(outer) on. None if the body
    does not begin with such loops."""
    first, *rest = body
    if not isinstance(first, For) or first.extent.key() != dim(out.shape[len(outer)]).key():
        return None
    at = [*outer, Expr("var", (), first.extent.dtype, first.var)]
    if len(at) == out.rank:
        return rest if _copies(first.body, out.at(*at), data.at(*at)) else None
    inner = _without_copy(first.body, at, out, data)
    if not inner:
        return None if inner is None else rest
    return [replace(first, body=inner), *rest] if first.kind == "parallel" else None  # iterations are independent


def _copies(body: list[Stmt], to: Expr, element: Expr) -> bool:
    if len(body) != 1 or not isinstance(body[0], Store) or body[0].target is not to.value:
        return False
    return [c.key() for c in body[0].coords] == [c.key() for c in to.args] and body[0].value.key() == element.key()


def _loads(body: list[Stmt], t: Tensor) -> bool:
    return any(x.op == "at" and x.value is t for x in nodes(body))


# ── rewriting them ────────────────────────────────────────────────────────────────────────────────────────────────


def _rewrite(traced: Traced, name: str, cache: _Cache) -> None:
    """Place the feed in the output's buffer. The capacity is along the first axis, so that strides stay the same."""
    feed, past = cache.feed, cache.feed.tensor
    removed = {id(k) for k in cache.views}
    traced.block.kernels[:] = [k for k in traced.block.kernels if id(k) not in removed]
    leaf, places = leaf_with_capacity(feed, past.shape, 0)
    base = leaf.out
    for s in reversed(cache.scatters):
        s.kernel.args = (base, *[t for t in s.kernel.args if t is not s.data])
        s.kernel.bases, s.kernel.body = (base,), s.body
        base = s.kernel.out
    out = cache.out
    if cache.transposed:
        out = traced.outputs[name] = _write_transposed(traced, cache.scatters[0].kernel, cache.transposed, leaf.out)
    feed.tensor, feed.room = leaf.out, Room(0, places, past.shape, past.shape[0], past.shape[0])
    traced.rooms[out.uid] = Room(0, places, past.shape)


def _write_transposed(
    traced: Traced, kernel: Loops, transposed: list[tuple[Tensor, Expr]], buffer: Tensor
) -> Tensor:  # fmt: skip
    """Make the procedure write in the order of the feed. Its old result becomes a view of the new one."""
    old, in_feed = transposed[0]
    new = Tensor(buffer.shape, old.dtype, kernel, 0, old.name)

    def load(e: Expr) -> Expr | None:
        return new.at(*substitute(in_feed, e.args).args) if e.op == "at" and e.value is old else None

    def reordered(s: Stmt) -> Stmt:
        s = rebuild(s, lambda e: rewrite(e, load), lambda body: [reordered(inner) for inner in body])
        if not isinstance(s, Store) or s.target is not old:
            return s
        return Store(new, substitute(in_feed, s.coords).args, s.value)

    kernels = traced.block.kernels
    for t, e in transposed:
        at = next(n for n, k in enumerate(kernels) if k is t.kernel)
        kernels[at : at + 1] = [*([kernel] if t is old else []), view_of(t, new.at(*e.args), kernel.node)]
    kernel.outputs, kernel.body = (new,), [reordered(s) for s in kernel.body]
    return new
