"""Finds equal layers of a graph. Of these the compiler traces and optimises the first four and the last, and
`layer_copies` makes the kernels of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from pyruntime.frontend.trace_graph import Spec, TensorSpec
from pyruntime.onnx.graph import Graph, Node, enclosing, subgraphs, uses

MODEL = 3  # the layer whose kernels are copied: the layers before and after it are equal, too
LEAST = 24  # nodes that are not traced; fewer are not worth the search


class Layers:
    """`count` layers of `period` nodes from the node `first` on. They differ in the names of values, in the contents of
    weights, and in names of dims of inputs. short: the graph with the layers 0 to MODEL and the last one"""

    def __init__(self, graph: Graph, first: int, period: int, count: int) -> None:
        self.graph, self.first, self.period, self.count = graph, first, period, count
        self.last = count - 1
        self.copied = range(MODEL + 1, self.last)
        self._labels = {id(node): node.label for node in graph.nodes[first : first + count * period]}
        self._names: dict[tuple[int, int], dict[str, str]] = {}
        self.short = self._short()
        kept = (*range(MODEL + 1), self.last)
        own = [x for x, y in self.names(MODEL + 1).items() if x != y and x in graph.weights]
        self.tags = {label: n for n in kept for label in self.labels(n).values()}  # layers by label of a node
        self.tags |= {names[x]: n for n in kept for names in [self.names(n)] for x in own}  # and by name of a weight

    def nodes(self, layer: int) -> tuple[Node, ...]:
        start = self.first + layer * self.period
        return self.graph.nodes[start : start + self.period]

    def names(self, layer: int, like: int = MODEL) -> dict[str, str]:
        """By name of a value that nodes of the layer `like` mention, the one that those of `layer` do."""
        key = (layer, like)
        if key not in self._names:
            self._names[key] = self._corresponding(*key)
        return self._names[key]

    def _corresponding(self, layer: int, like: int) -> dict[str, str]:
        pairs = zip(self.nodes(like), self.nodes(layer), strict=True)
        return {
            x: y for a, b in pairs
            for x, y in zip((*a.inputs, *a.outputs), (*b.inputs, *b.outputs), strict=True)
        }  # fmt: skip

    def labels(self, layer: int, like: int = MODEL) -> dict[str, str]:
        """By label of a node of the layer `like`, that of `layer`."""
        names = self.names(layer, like)
        unpacked = {unpacking(x): unpacking(y) for x, y in names.items() if x in self.graph.weights}
        own = self._labels
        return unpacked | {own[id(a)]: own[id(b)] for a, b in zip(self.nodes(like), self.nodes(layer), strict=True)}

    def layer_of(self, label: str) -> int | None:
        """The layer of the node with a label, or of the weight with a name; None if it belongs to no layer."""
        return self.tags.get(enclosing(label)[0])

    def _short(self) -> Graph:
        graph, nodes = self.graph, self.graph.nodes
        made = {o for n in self.copied for node in self.nodes(n) for o in node.outputs}
        given = {name for n in self.copied for x, name in self.names(n).items() if x != name} - made
        before = {b: a for a, b in self.names(self.last - 1).items() if b in made}
        last = [replace(node, inputs=tuple([before.get(x, x) for x in node.inputs])) for node in self.nodes(self.last)]
        first, end = self.first + len(range(MODEL + 1)) * self.period, self.first + self.count * self.period
        gone = given - {o for node in nodes[:first] for o in node.outputs}
        return replace(
            graph, nodes=(*nodes[:first], *last, *nodes[end:]),
            inputs=tuple([v for v in graph.inputs if v.name not in gone]),
            outputs=tuple([v for v in graph.outputs if v.name not in made]),
            weights={name: w for name, w in graph.weights.items() if name not in gone},
        )  # fmt: skip


def equal_layers(graph: Graph, specs: Mapping[str, Spec]) -> Layers | None:
    """The equal layers that save the most nodes, if there are at least two more than the compiler needs. specs: of the
    inputs"""
    if len(graph.nodes) <= LEAST or any(n.op in ("Gradient", "Step") for n in graph.nodes):
        return None
    return _Search(graph, specs).found()


def unpacking(weight: str) -> str:
    """The label of the kernel that extracts the elements of a packed weight (frontend/packed_weights.py)."""
    return f'Unpack "{weight}"'


class _Search:
    def __init__(self, graph: Graph, specs: Mapping[str, Spec]) -> None:
        self.graph, self.specs = graph, specs
        self.nodes = graph.nodes
        self.makers = {o: (n, i) for n, node in enumerate(self.nodes) for i, o in enumerate(node.outputs) if o}
        self.users: dict[str, list[int]] = {}
        for n, node in enumerate(self.nodes):
            for name in uses(node) if any(True for _ in subgraphs(node)) else node.inputs:
                self.users.setdefault(name, []).append(n)
        self.inputs = {v.name for v in graph.inputs}
        self.outputs = {v.name for v in graph.outputs}
        self.kinds = [self._kind(n) for n in self.nodes]

    def _kind(self, node: Node) -> object:
        """Equal for nodes that differ in names of values alone."""
        if (node.domain, node.op, node.overload) in self.graph.functions or any(True for _ in subgraphs(node)):
            return id(node)
        attrs = repr(node.attrs) if node.attrs else ""
        return node.op, node.domain, node.opset, node.overload, len(node.inputs), len(node.outputs), attrs

    def found(self) -> Layers | None:
        first, period, more = max(map(self._run, self._periods()), key=lambda run: run[1] * run[2], default=(0, 0, 0))
        if period * more < LEAST:
            return None
        layers = Layers(self.graph, first, period, more + MODEL + 2)
        return layers if self._apart(layers) else None

    def _periods(self) -> set[int]:
        """Distances between nodes of the kinds that layers may have once."""
        places: dict[object, list[int]] = {}
        for n, kind in enumerate(self.kinds):
            places.setdefault(kind, []).append(n)
        periods = set()
        for found in places.values():
            if len(found) > MODEL + 2:
                distance, count = Counter(b - a for a, b in pairwise(found)).most_common(1)[0]
                periods |= {distance} if 2 * count > len(found) else set()
        return periods

    def _run(self, d: int) -> tuple[int, int, int]:
        """The first node of the longest run of layers of d nodes, d, and the number of layers that need no tracing."""
        best = (0, d, 0)
        start, end = 0, len(self.nodes) - d
        for n in range(end + 1):
            if n < end and self._alike(n, n + d) and self._used_alike(n, n + d):
                continue
            count = (n - start) // d + 1
            if count - MODEL - 1 > best[2]:
                # A further layer may be the last one: its nodes are alike, but other nodes read their results.
                nodes = range(start + (count - 1) * d, start + count * d)
                count += nodes[-1] < end and all(self._alike(n, n + d) for n in nodes)
                best = max(best, (start, d, count - MODEL - 2), key=lambda run: run[2])
            start = n + 1
        return best

    def _alike(self, n: int, m: int) -> bool:
        """Whether two nodes compute the same from operands of the same kinds at the same distances."""
        pairs = zip(self.nodes[n].inputs, self.nodes[m].inputs, strict=False)  # kinds have the number
        return self.kinds[n] == self.kinds[m] and all(x == y or self._operands(n, x, m, y) for x, y in pairs)

    def _operands(self, n: int, x: str, m: int, y: str) -> bool:
        made_x, made_y = self.makers.get(x), self.makers.get(y)
        if made_x and made_y:
            return made_x[1] == made_y[1] and n - made_x[0] == m - made_y[0]
        if made_x or made_y or not x or not y or self._distances(n, x) != self._distances(m, y):
            return False
        w, v = self.graph.weights.get(x), self.graph.weights.get(y)
        if w and v and not {x, y} & (self.inputs | self.outputs):
            return (w.dtype, w.shape, w.strings, w.is_state) == (v.dtype, v.shape, None, False)
        return not w and not v and self._same_spec(self.specs.get(x), self.specs.get(y))

    @staticmethod
    def _same_spec(a: Spec, b: Spec) -> bool:
        """Whether feeds have the same type, and the same dims except for names."""
        if not isinstance(a, TensorSpec) or not isinstance(b, TensorSpec) or a.dtype is not b.dtype:
            return False
        dims = zip(a.dims, b.dims, strict=False)
        same = all(d == e or isinstance(d, str) and isinstance(e, str) for d, e in dims)
        return same and len(a.dims) == len(b.dims) and a.value is b.value is None

    def _used_alike(self, n: int, m: int) -> bool:
        pairs = zip(self.nodes[n].outputs, self.nodes[m].outputs, strict=True)
        return all(
            bool(x) == bool(y) and (x in self.outputs) == (y in self.outputs)
            and self._distances(n, x) == self._distances(m, y)
            for x, y in pairs
        )  # fmt: skip

    def _distances(self, n: int, name: str) -> list[int]:
        return [user - n for user in self.users.get(name, ())]

    def _apart(self, layers: Layers) -> bool:
        """Whether a layer reads results of itself, of the layer before it and of no other layer, and weights and inputs
        of its own or of all."""
        first = layers.first + MODEL * layers.period
        own = range(first, first + layers.period)
        for x, y in layers.names(MODEL + 1).items():
            if x == y:
                continue
            if x in self.makers:
                if self.makers[x][0] < first - layers.period:
                    return False
            elif any(user not in own for user in self.users[x]):
                return False
        return True
