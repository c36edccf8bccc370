"""Paths beside the products of a graph, which add what adapters have learnt: y + scale · (x · Aᵀ) · Bᵀ, or to the
weight of a product or a convolution: W + scale · B · A. With DoRA, each row of that sum then gets a length that is
learnt, too.

A and B are values of the graph: weights that are trained, or inputs that each run feeds. So the product's own weight is
never read or changed, and may be of 4 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyruntime.frontend.registry import INTERNAL, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import X, Y, maximum, select, sqrt
from pyruntime.ir.kernel import Tensor
from pyruntime.onnx.graph import Graph, Node, subgraphs
from pyruntime.ops.standard.matmul import matmul
from pyruntime.runtime.adapter_places import NO_MAGNITUDE
from pyruntime.training.adapters.sites import WEIGHT, Site

_LEAST_LENGTH = 1e-30  # of what is divided: a filter of zeros stays one
BESIDE = "adapters/"  # before the names of the values that side paths add to


@dataclass(frozen=True, slots=True)
class Side:
    """a: name of A, of shape (rank, fan_in), or of several A as rows (rows_a, rank) from row `first_a`; b: of B, of
    shape (columns, rank), from row `first_b`; first, columns: of the site's output; is_stacked: whether A has rows;
    magnitudes: name of DoRA's lengths, one for each column of the output, or of several as those of B; "" without"""

    a: str
    b: str
    scale: float
    first: int
    columns: int
    is_stacked: bool = False
    first_a: int = 0
    first_b: int = 0
    magnitudes: str = ""

    @property
    def names(self) -> list[str]:
        return [name for name in (self.a, self.b, self.magnitudes) if name]


@op("Side", since=1, domain=INTERNAL)
def side(t: Tracer, x: Tensor, y: Tensor, *pairs: Tensor, sides: Sequence[Side], fan_in: int) -> Tensor:
    """y + the products of x with pairs of A and B; y is the output of a product of x"""
    for one, a, b, _ in _operands(t, pairs, sides, fan_in, x):
        y = _plus(t, y, one, matmul(t, matmul(t, x, a), b), y.rank - 1)
    return y


@op("SideOfWeight", since=1, domain=INTERNAL)
def side_of_weight(
    t: Tracer, w: Tensor, *inputs: Tensor, sides: Sequence[Side], fan_in: int, transposed: int
) -> Tensor:  # fmt: skip
    """A weight + the products of pairs of A and B, in the weight's shape; with DoRA, in float32 between. transposed:
    whether the columns of the output are its first axis, as of a convolution's filters"""
    axis = 0 if transposed else 1
    matrix = t.reshape(w, (w.shape[0], fan_in)) if w.rank > 2 else w
    matrix = t.cast(matrix, F32) if any(s.magnitudes for s in sides) else matrix
    wanted: list[tuple[Side, Tensor]] = []
    for one, a, b, m in _operands(t, inputs, sides, fan_in, matrix):
        part = matmul(t, t.transpose(b, [1, 0]), t.transpose(a, [1, 0])) if transposed else matmul(t, a, b)
        matrix = _plus(t, matrix, one, part, axis)
        wanted += [(one, m)] if m is not None else []
    matrix = _with_magnitudes(t, matrix, wanted, axis) if wanted else matrix
    return t.reshape(t.cast(matrix, w.dtype), w.shape)


def _operands(
    t: Tracer, inputs: Sequence[Tensor], sides: Sequence[Side], fan_in: int, like: Tensor
) -> Iterator[tuple[Side, Tensor, Tensor, Tensor | None]]:  # fmt: skip
    """Each side path with its matrices, A as (fan_in, rank) and B as (rank, columns), in the type of `like`, and its
    magnitudes. inputs: the tensors of the first path, then of the next, as the adapter's file has them"""
    given = iter(inputs)
    for one in sides:
        a, b, *rest = [next(given) for _ in one.names]
        if one.is_stacked:
            a, b = t.slice(a, 0, one.first_a, fan_in), t.slice(b, 0, one.first_b, one.columns)
        else:
            a, b = (t.reshape(x, (x.shape[0], n)) for x, n in ((a, fan_in), (b, a.shape[0])))
            a = t.transpose(a, [1, 0])
        yield one, t.cast(a, like.dtype), t.transpose(t.cast(b, like.dtype), [1, 0]), rest[0] if rest else None


def _plus(t: Tracer, y: Tensor, one: Side, part: Tensor, axis: int) -> Tensor:
    part = part if one.scale == 1.0 else t.map(X * one.scale, part)
    return t.map(X + Y, y, t.cast(_padded(t, part, one.first, y, axis), y.dtype))


def _padded(t: Tracer, part: Tensor, first: int, like: Tensor, axis: int, value: float = 0.0) -> Tensor:
    """With this value in the columns of `like`, along `axis`, that the part does not have."""
    whole, size = like.shape[axis], part.shape[axis]
    if whole == size:
        return part
    assert isinstance(whole, int) and isinstance(size, int)
    rest = whole - first - size
    ends = [t.fill((*part.shape[:axis], n, *part.shape[axis + 1 :]), value, part.dtype) for n in (first, rest)]
    return t.concat([*ends[:1] * (first > 0), part, *ends[1:] * (rest > 0)], axis)


def _with_magnitudes(t: Tracer, matrix: Tensor, wanted: Sequence[tuple[Side, Tensor]], axis: int) -> Tensor:
    """The matrix, whose vectors for each column of the output get these lengths. As in DoRA's paper (section 4.3), no
    gradient flows through the lengths that they have."""
    squares = t.reduce("sum", matrix, [1 - axis], of=X * X)
    length = t.still(t.map(maximum(sqrt(X), _LEAST_LENGTH), squares))
    for one, m in wanted:
        if one.is_stacked:
            m = t.slice(m, 0, one.first_b, one.columns)
        m = t.reshape(t.cast(m, F32), tuple(one.columns if n == axis else 1 for n in range(2)))
        m = _padded(t, m, one.first, matrix, axis, NO_MAGNITUDE)
        m = t.map(select(X < NO_MAGNITUDE, X, Y), m, length) if one.is_stacked else m
        matrix = t.map(X * Y, matrix, t.map(X / Y, m, length))
    return matrix


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
    inputs = [name for s in sides for name in s.names]
    attrs: dict[str, object] = {"sides": tuple(sides), "fan_in": site.fan_in}
    if site.way == WEIGHT:
        new = f"{BESIDE}{node.outputs[0]}"
        attrs["transposed"] = int(bool(node.attrs.get("transB")) or node.op == "Conv")
        weight = Node("SideOfWeight", INTERNAL, 1, node.name, (node.inputs[1], *inputs), (new,), attrs)
        return [weight, replace(node, inputs=(node.inputs[0], new, *node.inputs[2:]))]
    old = f"{BESIDE}{node.outputs[0]}"
    beside = Node("Side", INTERNAL, 1, node.name, (node.inputs[0], old, *inputs), (node.outputs[0],), attrs)
    return [replace(node, outputs=(old, *node.outputs[1:])), beside]
