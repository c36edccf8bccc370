"""Paths beside the products of a graph, which add what adapters have learnt: y + scale · (x · Aᵀ) · Bᵀ.

A and B are values of the graph: weights that are trained, or inputs that each run feeds. So the product's own weight is
never read or changed, and may be of 4 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyruntime.frontend.registry import INTERNAL, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.expr import X, Y
from pyruntime.ir.kernel import Tensor
from pyruntime.onnx.graph import Graph, Node, subgraphs
from pyruntime.ops.standard.matmul import matmul
from pyruntime.training.adapters.sites import WEIGHT, Site

BESIDE = "adapters/"  # before the names of the values that side paths add to


@dataclass(frozen=True, slots=True)
class Side:
    """a: name of A, of shape (rank, fan_in), or of several A as rows (rows_a, rank) from row `first_a`; b: of B, of
    shape (columns, rank), from row `first_b`; first, columns: of the site's output; is_stacked: whether A has rows"""

    a: str
    b: str
    scale: float
    first: int
    columns: int
    is_stacked: bool = False
    first_a: int = 0
    first_b: int = 0


@op("Side", since=1, domain=INTERNAL)
def side(t: Tracer, x: Tensor, y: Tensor, *pairs: Tensor, sides: Sequence[Side], fan_in: int) -> Tensor:
    """y + the products of x with pairs of A and B; y is the output of a product of x"""
    for one, a, b in _operands(t, pairs, sides, fan_in, x):
        y = _plus(t, y, one, matmul(t, matmul(t, x, a), b))
    return y


@op("SideOfWeight", since=1, domain=INTERNAL)
def side_of_weight(
    t: Tracer, w: Tensor, *pairs: Tensor, sides: Sequence[Side], fan_in: int, transposed: int
) -> Tensor:  # fmt: skip
    """A weight + the products of pairs of A and B, in the weight's shape"""
    plain = t.transpose(w, [1, 0]) if transposed else w
    for one, a, b in _operands(t, pairs, sides, fan_in, w):
        plain = _plus(t, plain, one, matmul(t, a, b))
    return t.transpose(plain, [1, 0]) if transposed else plain


def _operands(
    t: Tracer, pairs: Sequence[Tensor], sides: Sequence[Side], fan_in: int, like: Tensor
) -> Iterator[tuple[Side, Tensor, Tensor]]:  # fmt: skip
    """Each side path with its matrices, A as (fan_in, rank) and B as (rank, columns), in the type of `like`. pairs: A
    and B of the first path, then of the next, as the adapter's file has them"""
    for one, a, b in zip(sides, pairs[::2], pairs[1::2], strict=True):
        if one.is_stacked:
            a, b = t.slice(a, 0, one.first_a, fan_in), t.slice(b, 0, one.first_b, one.columns)
        else:
            a = t.transpose(a, [1, 0])
        yield one, t.cast(a, like.dtype), t.transpose(t.cast(b, like.dtype), [1, 0])


def _plus(t: Tracer, y: Tensor, one: Side, part: Tensor) -> Tensor:
    part = part if one.scale == 1.0 else t.map(X * one.scale, part)
    return t.map(X + Y, y, t.cast(_padded(t, part, one.first, y), y.dtype))


def _padded(t: Tracer, part: Tensor, first: int, like: Tensor) -> Tensor:
    """With zeros in the columns of `like` that the part does not have."""
    whole, size = like.shape[-1], part.shape[-1]
    if whole == size:
        return part
    assert isinstance(whole, int) and isinstance(size, int)
    rest = whole - first - size
    zeros = [t.fill((*part.shape[:-1], n), 0.0, part.dtype) for n in (first, rest)]
    return t.concat([*zeros[:1] * (first > 0), part, *zeros[1:] * (rest > 0)], part.rank - 1)


def with_sides(graph: Graph, sides: Mapping[tuple[int, ...], tuple[Site, Sequence[Side]]]) -> Graph:
    """The graph with these paths, by the path of the site."""
    return _rewritten(graph, (), sides) if sides else graph


def _rewritten(
    graph: Graph, path: tuple[int, ...], sides: Mapping[tuple[int, ...], tuple[Site, Sequence[Side]]]
) -> Graph:  # fmt: skip
    made: list[Node] = []
    for n, node in enumerate(graph.nodes):
        inner = {id(g): _rewritten(g, (*path, n, k), sides) for k, g in enumerate(subgraphs(node))}
        if inner:
            attrs = {name: _replaced(value, inner) for name, value in node.attrs.items()}
            node = replace(node, attrs=attrs)
        if found := sides.get((*path, n)):
            made += _with_side(node, *found)
        else:
            made.append(node)
    return replace(graph, nodes=tuple(made))


def _replaced(value: object, inner: Mapping[int, Graph]) -> object:
    if isinstance(value, Graph):
        return inner[id(value)]
    if isinstance(value, tuple) and value and isinstance(value[0], Graph):
        return tuple(inner[id(g)] for g in value)
    return value


def _with_side(node: Node, site: Site, sides: Sequence[Side]) -> list[Node]:
    pairs = [name for s in sides for name in (s.a, s.b)]
    attrs: dict[str, object] = {"sides": tuple(sides), "fan_in": site.fan_in}
    if site.way == WEIGHT:
        new = f"{BESIDE}{node.outputs[0]}"
        attrs["transposed"] = int(bool(node.attrs.get("transB")))
        weight = Node("SideOfWeight", INTERNAL, 1, node.name, (node.inputs[1], *pairs), (new,), attrs)
        return [weight, replace(node, inputs=(node.inputs[0], new, *node.inputs[2:]))]
    old = f"{BESIDE}{node.outputs[0]}"
    beside = Node("Side", INTERNAL, 1, node.name, (node.inputs[0], old, *pairs), (node.outputs[0],), attrs)
    return [replace(node, outputs=(old, *node.outputs[1:])), beside]
