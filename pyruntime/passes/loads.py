"""Loads of one tensor expressed as loads of another: how passes look through views and reshapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, dim, is_view, rem, substitute
from pyruntime.ir.kernel import Alias, Leaf, Loops, Map, Tensor
from pyruntime.ir.shape import AnyDim, Shape

Axes = list[tuple[Expr, AnyDim]]  # the index of each axis, and its extent
Joined = dict[int, tuple[Expr, Axes]]  # by id: an index that joins several axes, and those axes


def through_views(load: Expr) -> Expr:
    """The load from the tensor that remains after looking through all views and reshapes."""
    for source in sources(load):
        load = source
    return load


def sources(load: Expr) -> Iterator[Expr]:
    """A load from a view or a reshape as a load from its source, then from the source's source, and so on."""
    joined = Joined()
    while load.op == "at":
        kernel = load.value.kernel
        is_view_of_tensor = isinstance(kernel, Map) and kernel.expr.op == "at" and is_view(kernel.expr)
        inner = substitute(kernel.expr, load.args) if is_view_of_tensor else in_base(load, joined)
        if inner is None:
            return
        load = inner
        yield load


def in_base(load: Expr, joined: Joined) -> Expr | None:
    """A load of a reshaped tensor as a load of the tensor that was reshaped. None if the tensor is no reshape, or if
    the indices cannot be computed. joined: a table that the calls for one load share."""
    t = load.value
    if not isinstance(t.kernel, Alias):
        return None
    base = t.kernel.base
    coords = _reshaped(list(zip(load.args, t.shape, strict=True)), base.shape, joined)
    return None if coords is None else base.at(*coords)


def view_of(t: Tensor, load: Expr, node: str) -> Map:
    """A map that makes the tensor `t` a view: its elements are those of `load`."""
    view = Map(load)
    view.node, view.outputs = node, (t,)
    t.kernel = view
    return view


def is_stored_constant(t: Tensor, made_in_init: set[int]) -> bool:
    """Whether a tensor is a weight, a constant of the graph, or a result of the init block (uids)."""
    return t.uid in made_in_init or (isinstance(t.kernel, Leaf) and t.kernel.kind in ("weight", "constant"))


def is_of_states(t: Tensor) -> bool:
    """Whether a tensor is a weight that runs change, or made of such weights by maps."""
    kernel = t.kernel
    if isinstance(kernel, Alias):
        return is_of_states(kernel.base)
    if isinstance(kernel, Loops):
        return bool(kernel.bases) and is_of_states(kernel.bases[t.index])
    if isinstance(kernel, Map):
        return bool(kernel.inputs) and all(is_of_states(x) for x in kernel.inputs)
    return isinstance(kernel, Leaf) and kernel.kind == "state"


def _reshaped(axes: Axes, base: Shape, joined: Joined) -> list[Expr] | None:
    """Coordinates in a tensor of shape `base`, given the coordinates in a reshape of it.

    None unless each axis of one tensor consists of whole axes of the other. Splitting an index needs static extents."""
    rest = [axis for index, d in axes for axis in joined.get(id(index), (index, [(index, d)]))[1] if axis[1] != 1]
    coords: list[Expr] = []
    n = 0
    while n < len(base):
        if base[n] == 1:
            coords.append(dim(0))
            n += 1
        elif (count := _prefix([d for _, d in rest], base[n])) is not None:
            coords.append(_join(rest[:count], joined))
            rest = rest[count:]
            n += 1
        elif rest and (count := _prefix(base[n:], rest[0][1])) is not None:
            extents = base[n : n + count]
            if not all(isinstance(d, int) and d > 0 for d in extents[1:]):
                return None
            coords += _split(rest.pop(0)[0], extents)
            n += count
        else:
            return None
    return None if rest else coords


def _prefix(extents: Sequence[AnyDim], size: AnyDim) -> int | None:
    """The number of leading extents whose product is `size`."""
    return next((n for n in range(1, len(extents) + 1) if sh.size(extents[:n]) == size), None)


def _join(axes: Axes, joined: Joined) -> Expr:
    """One index for several axes, row-major."""
    index, _ = axes[0]
    for inner, extent in axes[1:]:
        index = index * dim(extent) + inner
    joined[id(index)] = index, axes
    return index


def _split(index: Expr, extents: Sequence[AnyDim]) -> list[Expr]:
    """The indices of several axes that one index joins, row-major. The first extent need not be static."""
    coords: list[Expr] = []
    for d in reversed(extents[1:]):
        coords.insert(0, dim(0) if d == 1 else rem(index, dim(d)))
        index = index if d == 1 else index / dim(d)
    return [index, *coords]
