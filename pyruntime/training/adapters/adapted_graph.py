"""Adds inputs for adapters to a graph, and the products that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import F32
from pyruntime.onnx.graph import Graph, TensorType, Value
from pyruntime.runtime.adapter_places import ALL_A, ALL_B, ALL_MAGNITUDES, Pair, matrix_shape, module_key
from pyruntime.training.adapters.adapter_file import Adapter
from pyruntime.training.adapters.adapter_inputs import RANK, AdapterInputs, Rows, Shape, in_javascript, shapes_of
from pyruntime.training.adapters.sides import Side, with_sides
from pyruntime.training.adapters.sites import Modules, Part, Site, for_dora, sites
from pyruntime.training.files.safetensors import Stored

_Place = tuple[tuple[int, ...], int, int]  # the path of a site, and columns of its output: the first, how many


@dataclass(slots=True)
class AdaptedGraph(AdapterInputs):
    """graph: with the inputs; products: of the model, by the names of modules; adapters: those that it was made for;
    is_dora: whether some of them are of DoRA"""

    graph: Graph = field(kw_only=True)
    products: Modules = field(kw_only=True)
    adapters: Mapping[str, Adapter] = field(kw_only=True)
    is_dora: bool = False
    places_of_rows: dict[_Place, Rows] = field(default_factory=dict)
    kind: ClassVar[str] = "adapters"  # of what it tells the page

    def rows(self, adapter: Adapter, pair: Pair, name: str) -> Sequence[Rows]:
        """Also of modules that exporters and the adapter name differently."""
        found = dict.fromkeys(self.places_of_rows.get(_place(p)) for p in self.parts(adapter, pair, name))
        rows = [x for x in found if x is not None]
        if len(rows) < len(found):
            text = f'the session has no place for "{pair.module}" of adapter "{name}"'
            raise InvalidInput(text, hint="name it in the option adapters when the session is created")
        return rows

    def parts(self, adapter: Adapter, pair: Pair, name: str) -> list[Part]:
        """The products to which a pair adds. Errors: InvalidInput"""
        a, b = adapter.tensors[pair.a].shape, adapter.tensors[pair.b].shape
        window = tuple(a[1:]) if len(a) > 2 else ()
        for columns, rows in ((matrix_shape(a)[1], b[0]), (a[0], b[1])):
            parts = self.products.parts(pair.module, rows)
            if not parts:
                known = ", ".join(".".join(k) for k in list(self.products.by_name)[:6]) or "none"
                raise InvalidInput(
                    f'the model has no product for "{pair.module}" of adapter "{name}"', hint=f"products are {known}, …"
                )
            if all(p.site.fan_in == columns and 0 <= p.first and p.first + rows <= p.site.fan_out for p in parts):
                if parts[0].size == rows and all(p.site.window == window for p in parts):
                    return parts
        site = parts[0].site
        of_filter = f", its filters are {list(site.window)}" if site.window else ""
        raise InvalidInput(
            f'adapter "{name}" does not fit {site.node.label}: it is {site.fan_in} to {site.fan_out}{of_filter}, '
            f'"{pair.a}" is {list(a)}, "{pair.b}" is {list(b)}'
        )

    def report(self) -> dict[str, Any]:
        """For the page: also where its adapters go."""
        found = {name: in_javascript(self.places(a, name)) for name, a in self.adapters.items()}
        return {"places": found, **self.described()}

    def described(self) -> dict[str, Any]:
        slots = {name: slot for name, slot in self.slots.items() if not self.graph.weights.keys() & {*slot}}
        return {**AdapterInputs.described(self), "slots": slots}

    def reserve(self, sides: dict[tuple[int, ...], tuple[Site, list[Side]]], parts: Sequence[Part]) -> Rows:
        """Rows for one module, which all of its sites read."""
        known = next((self.places_of_rows[_place(p)] for p in parts if _place(p) in self.places_of_rows), None)
        if known is None:
            known = Rows(self.rows_a, parts[0].site.fan_in, self.rows_b, parts[0].size)
            self.rows_a += known.rows_a
            self.rows_b += known.rows_b
        for part in parts:
            if _place(part) not in self.places_of_rows:
                self.places_of_rows[_place(part)] = known
                site, magnitudes = (for_dora(part.site), ALL_MAGNITUDES) if self.is_dora else (part.site, "")
                side = Side(ALL_A, ALL_B, 1.0, part.first, part.size, True, known.first_a, known.first_b, magnitudes)
                sides.setdefault(site.path, (site, []))[1].append(side)
        return known


def _place(part: Part) -> _Place:
    return part.site.path, part.first, part.size


def adapted_graph(graph: Graph, adapters: Mapping[str, Adapter]) -> AdaptedGraph:
    """The graph for these adapters, and for others of the same modules. Errors: InvalidInput names adapter and
    module."""
    made = AdaptedGraph(shapes_of(graph), graph=graph, products=Modules(sites(graph)), adapters=adapters)
    made.slots = _slots(graph)
    given = [a for a in adapters.values() if not a.tensors.keys() <= made.shapes.keys()]
    made.is_dora = any(pair.magnitudes for a in given for pair in a.pairs())
    sides: dict[tuple[int, ...], tuple[Site, list[Side]]] = {}
    fed: set[str] = set()
    for name, adapter in adapters.items():
        if adapter.tensors.keys() <= made.shapes.keys():
            fed |= adapter.tensors.keys()
            continue
        for pair in adapter.pairs():
            if slot := made.slots.get(module_key(pair.module)):
                fed |= {*slot}
                continue
            rows = made.reserve(sides, made.parts(adapter, pair, name))
            made.modules.setdefault(module_key(pair.module), [])
            if rows not in made.modules[module_key(pair.module)]:
                made.modules[module_key(pair.module)].append(rows)
    new: tuple[Value, ...] = ()
    if made.rows_a:
        sizes: dict[str, Shape] = {ALL_A: (made.rows_a, RANK), ALL_B: (made.rows_b, RANK)}
        if made.is_dora:
            sizes[ALL_MAGNITUDES] = (made.rows_b,)
            made.shapes = {**made.shapes, **sizes}
        new = tuple(Value(n, TensorType(F32, shape)) for n, shape in sizes.items())
    replaced = {n: graph.weights[n] for n in fed if n in graph.weights}
    made.defaults = {n: Stored(w.dtype.name, w.shape, w.read() if w.size else b"") for n, w in replaced.items()}
    weights = {n: w for n, w in graph.weights.items() if n not in fed}
    whole = with_sides(graph, sides)
    made.graph = replace(whole, inputs=(*whole.inputs, *new), weights=weights)
    return made


def _slots(graph: Graph) -> dict[str, tuple[str, str]]:
    """The model's own inputs for adapters, those of A and B, by module."""
    names = {v.name: v for v in graph.inputs if "lora_A" in v.name or "lora_B" in v.name}
    found = {}
    for name in names:
        if "lora_A" in name and (other := name.replace("lora_A", "lora_B")) in names:
            found[module_key(name.partition(".lora_A")[0])] = (name, other)
    return found
