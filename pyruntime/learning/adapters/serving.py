"""The graph that runs with any of several adapters, and where their numbers go.

A run feeds two matrices: the A of all modules as rows below one another, transposed, and the B likewise. Their columns
are the ranks of the adapters that are active in this run, side by side, so that one Program serves each adapter,
several at once, and none (no columns). Models that were exported with inputs for adapters get these fed.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import F32
from pyruntime.learning.adapters.adapter_file import Adapter, Pair
from pyruntime.learning.adapters.sides import Side, with_sides
from pyruntime.learning.adapters.sites import Modules, Part, Site, plain_name, sites
from pyruntime.onnx.graph import Graph, TensorType, Value, Weight, tensor_type

ALL_A, ALL_B, RANK = "adapters:A", "adapters:B", "adapters:rank"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a pair goes: A, element (row, rank), to row first_a + row; B to first_b + row. rows_a, rows_b: numbers of
    rows; is_peft: whether A is (rank, rows) and B (rows, rank), else the other way round; scale: of B"""

    a: str
    b: str
    first_a: int
    first_b: int
    rows_a: int
    rows_b: int
    rank: int
    is_peft: bool
    scale: float


@dataclass(frozen=True, slots=True)
class Fed:
    """A tensor that is fed to an input of the model. axis: of the rank, along which several adapters are joined (-1:
    only one may be active); is_transposed: whether the tensor is the transpose of what the input takes"""

    input: str
    tensor: str
    axis: int = -1
    is_transposed: bool = False
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Places:
    """Where the tensors of an adapter go."""

    entries: tuple[Entry, ...] = ()
    fed: tuple[Fed, ...] = ()


@dataclass(slots=True)
class Serving:
    """graph: with inputs for adapters; rows_a, rows_b: of ALL_A and ALL_B; defaults: of the model's own inputs for
    adapters, in runs without one"""

    graph: Graph
    modules: Modules
    slots: Mapping[tuple[str, ...], tuple[str, str]]
    rows_a: int = 0
    rows_b: int = 0
    rows: dict[tuple[tuple[int, ...], int, int], tuple[int, int]] = field(default_factory=dict)
    defaults: dict[str, Weight] = field(default_factory=dict)
    adapters: Mapping[str, Adapter] = field(default_factory=dict)
    kind: ClassVar[str] = "adapters"  # of what it tells the page

    def places(self, adapter: Adapter, name: str) -> Places:
        """Errors: InvalidInput for a module that the graph has no place for"""
        given = {v.name: v for v in self.graph.inputs}
        if adapter.tensors.keys() <= given.keys():
            fed = tuple(Fed(n, n, _rank_axis(n)) for n in adapter.tensors)
            return Places(fed=fed)
        entries: list[Entry] = []
        fed_: list[Fed] = []
        for pair in adapter.pairs():
            if slot := self.slot(pair.module):
                fed_ += _fed(adapter, pair, slot, given)
                continue
            parts = self.parts(adapter, pair, name)
            entries += self._entries(adapter, pair, parts, name)
        return Places(tuple(entries), tuple(fed_))

    def slot(self, module: str) -> tuple[str, str] | None:
        """The model's own inputs for the A and B of a module."""
        return self.slots.get(plain_name(module))

    def parts(self, adapter: Adapter, pair: Pair, name: str) -> list[Part]:
        a, b = adapter.tensors[pair.a].shape, adapter.tensors[pair.b].shape
        for columns, rows in ((a[1], b[0]), (a[0], b[1])):
            parts = self.modules.parts(pair.module, rows)
            if not parts:
                known = ", ".join(".".join(k) for k in list(self.modules.by_name)[:6]) or "none"
                raise InvalidInput(
                    f'the model has no product for "{pair.module}" of adapter "{name}"', hint=f"products are {known}, …"
                )
            if all(p.site.fan_in == columns and 0 <= p.first and p.first + rows <= p.site.fan_out for p in parts):
                if parts[0].size == rows:
                    return parts
        site = parts[0].site
        raise InvalidInput(
            f'adapter "{name}" does not fit {site.node.label}: it is {site.fan_in} to {site.fan_out}, '
            f'"{pair.a}" is {list(a)}, "{pair.b}" is {list(b)}'
        )

    def _entries(self, adapter: Adapter, pair: Pair, parts: Sequence[Part], name: str) -> list[Entry]:
        a, b = adapter.tensors[pair.a].shape, adapter.tensors[pair.b].shape
        is_peft = a[1] == parts[0].site.fan_in and b[0] == parts[0].size and a[0] == b[1]
        places = dict.fromkeys(self.rows.get(_key(p)) for p in parts)
        if None in places:
            raise InvalidInput(
                f'the session has no place for "{pair.module}" of adapter "{name}"',
                hint="name it in the option adapters when the session is created",
            )
        rank = a[0] if is_peft else a[1]
        return [
            Entry(pair.a, pair.b, *place, parts[0].site.fan_in, parts[0].size, rank, is_peft, pair.scale)
            for place in places if place is not None
        ]  # fmt: skip

    def report(self) -> dict[str, Any]:
        """For the page."""
        found = {name: asdict(self.places(a, name)) for name, a in self.adapters.items()}
        defaults = {
            n: {"dtype": w.dtype.name, "dims": list(w.shape), "data": b64encode(w.read()).decode() if w.size else ""}
            for n, w in self.defaults.items()
        }
        return {"places": found, "rowsA": self.rows_a, "rowsB": self.rows_b, "defaults": defaults}


def _key(part: Part) -> tuple[tuple[int, ...], int, int]:
    return part.site.path, part.first, part.size


def _rank_axis(name: str) -> int:
    if "lora_A" in name:
        return 1
    return 0 if "lora_B" in name else -1


def _fed(adapter: Adapter, pair: Pair, slot: tuple[str, str], given: Mapping[str, Value]) -> list[Fed]:
    """The pair of a PEFT adapter as inputs of the model: A (fan_in, rank), B (rank, fan_out)."""
    found = []
    shapes = [t.shape if (t := tensor_type(given[n].type)) is not None and t.shape is not None else () for n in slot]
    for n, (name, tensor) in enumerate(zip(slot, (pair.a, pair.b), strict=True)):
        shape, wanted = adapter.tensors[tensor].shape, shapes[n][n] if shapes[n] else None
        is_transposed = isinstance(wanted, int) and shape[n] != wanted
        if isinstance(wanted, int) and wanted not in shape:
            raise InvalidInput(f'"{tensor}" {list(shape)} does not fit input "{name}" {list(shapes[n])}')
        found.append(Fed(name, tensor, 1 - n, is_transposed, pair.scale if n else 1.0))
    return found


def serve(graph: Graph, adapters: Mapping[str, Adapter]) -> Serving:
    """The graph for these adapters, and for others of the same modules. Errors: InvalidInput names adapter and
    module."""
    inputs = {v.name for v in graph.inputs}
    serving = Serving(graph, Modules(sites(graph)), _slots(graph), adapters=adapters)
    sides: dict[tuple[int, ...], tuple[Site, list[Side]]] = {}
    fed: set[str] = set()
    for name, adapter in adapters.items():
        if adapter.tensors.keys() <= inputs:
            fed |= adapter.tensors.keys()
            continue
        for pair in adapter.pairs():
            if slot := serving.slot(pair.module):
                fed |= {*slot}
                continue
            _reserve(serving, sides, serving.parts(adapter, pair, name))
    new: tuple[Value, ...] = ()
    if serving.rows_a:
        rows = ((ALL_A, serving.rows_a), (ALL_B, serving.rows_b))
        new = tuple(Value(n, TensorType(F32, (count, RANK))) for n, count in rows)
    serving.defaults = {n: graph.weights[n] for n in fed if n in graph.weights}
    weights = {n: w for n, w in graph.weights.items() if n not in fed}
    made = with_sides(graph, sides)
    serving.graph = replace(made, inputs=(*made.inputs, *new), weights=weights)
    return serving


def _slots(graph: Graph) -> dict[tuple[str, ...], tuple[str, str]]:
    """The model's own inputs for adapters, those of A and B, by module."""
    names = {v.name: v for v in graph.inputs if "lora_A" in v.name or "lora_B" in v.name}
    found = {}
    for name in names:
        if "lora_A" in name and (other := name.replace("lora_A", "lora_B")) in names:
            found[plain_name(name.partition(".lora_A")[0])] = (name, other)
    return found


def _reserve(serving: Serving, sides: dict[tuple[int, ...], tuple[Site, list[Side]]], parts: Sequence[Part]) -> None:
    """Rows for one module, which all of its sites read."""
    known = next((serving.rows[_key(p)] for p in parts if _key(p) in serving.rows), None)
    if known is None:
        known = serving.rows_a, serving.rows_b
        serving.rows_a += parts[0].site.fan_in
        serving.rows_b += parts[0].size
    for part in parts:
        if _key(part) not in serving.rows:
            serving.rows[_key(part)] = known
            side = Side(ALL_A, ALL_B, 1.0, part.first, part.size, True, *known)
            sides.setdefault(part.site.path, (part.site, []))[1].append(side)
