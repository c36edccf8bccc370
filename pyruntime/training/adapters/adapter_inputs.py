"""The inputs of a graph for adapters, and where in them the numbers of an adapter go.

A run feeds two matrices: the A of all modules as rows below one another, transposed, and the B likewise. Their columns
are the ranks of the adapters that are active in this run, side by side, so that one Program serves each adapter,
several at once, and none (no columns). Models that were exported with inputs for adapters get these fed.
pyruntime/runtime/adapter_places.py finds the places of a Program, also in pages.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from pyruntime.errors import InvalidModel
from pyruntime.ir.dtype import BY_NAME
from pyruntime.onnx.graph import Graph, tensor_type
from pyruntime.runtime.adapter_places import ALL_MAGNITUDES, Pair, Places, fits, places_of, rows_in_program
from pyruntime.training.adapters.adapter_file import Adapter
from pyruntime.training.files.safetensors import Stored

RANK = "adapters:rank"  # the dim of the columns
Shape = tuple[Any, ...]


class Rows(NamedTuple):
    """The rows of a module: `rows_a` of ALL_A from `first_a` on, one for each column of its input, and `rows_b` of
    ALL_B from `first_b` on, one for each column of its output"""

    first_a: int
    rows_a: int
    first_b: int
    rows_b: int


@dataclass(slots=True)
class AdapterInputs:
    """shapes: of all inputs of the graph, by name
    rows_a, rows_b: of ALL_A and ALL_B; 0 if the graph does not have them
    modules: the rows of each module, by its `module_key`
    slots: of each module for whose A and B the model has inputs the names of these, by its `module_key`
    defaults: what is fed to inputs of the model in runs without adapters"""

    shapes: Mapping[str, Shape]
    rows_a: int = 0
    rows_b: int = 0
    modules: dict[str, list[Rows]] = field(default_factory=dict)
    slots: dict[str, tuple[str, str]] = field(default_factory=dict)
    defaults: dict[str, Stored] = field(default_factory=dict)

    @property
    def has_magnitudes(self) -> bool:
        """Whether the graph takes those of DoRA."""
        return ALL_MAGNITUDES in self.shapes

    def places(self, adapter: Adapter, name: str) -> Places:
        """name: of the adapter, for messages. Errors: InvalidInput for a module that has no place"""
        rows = lambda pair: self.rows(adapter, pair, name)  # noqa: E731
        return places_of({**adapter.shapes}, adapter.pairs, self.slots, {**self.shapes}, rows, name)

    def rows(self, adapter: Adapter, pair: Pair, name: str) -> Sequence[Rows]:
        """The places of a module. Errors: InvalidInput if it has none"""
        return [Rows(*rows) for rows in rows_in_program(self.modules, self.slots, pair, name)]

    # ── in files and for pages ───────────────────────────────────────────────────────────────────────────────────

    def described(self) -> dict[str, Any]:
        """As JSON, for `from_program` and for pages (AdaptersInfo in web/common/protocol.js)."""
        return {
            "rowsA": self.rows_a,
            "rowsB": self.rows_b,
            "hasMagnitudes": self.has_magnitudes,
            "modules": self.modules,
            "slots": self.slots,
            "defaults": {
                name: {"dtype": t.dtype, "dims": list(t.shape), "data": b64encode(t.data).decode()}
                for name, t in self.defaults.items()
            },
        }

    def in_file(self) -> dict[str, Any]:
        """What the header of a Program says about adapters."""
        return {"adapters": self.described()}

    @classmethod
    def from_program(cls, described: Any, graph: Graph) -> AdapterInputs:
        """Of a Program with these inputs. Errors: InvalidModel for damaged data"""
        shapes = shapes_of(graph)
        try:
            modules, slots, sizes = described["modules"], described["slots"], [described["rowsA"], described["rowsB"]]
            defaults = {n: _stored(t) for n, t in described["defaults"].items()}
            if not fits(modules, slots, [*defaults], sizes, {**shapes}):
                raise ValueError
        except (AttributeError, KeyError, TypeError, ValueError):
            text = "the program is damaged: its places for adapters do not fit its inputs"
            raise InvalidModel(text, hint="export it again") from None
        rows = {name: [Rows(*one) for one in several] for name, several in modules.items()}
        return cls(shapes, sizes[0], sizes[1], rows, {name: (a, b) for name, (a, b) in slots.items()}, defaults)


def _count(x: Any) -> int:
    if type(x) is not int or x < 0:
        raise ValueError
    return x


def _stored(described: Any) -> Stored:
    """Errors: KeyError, TypeError, ValueError for damaged data"""
    dtype, shape = described["dtype"], tuple(map(_count, described["dims"]))
    data = b64decode(described["data"])
    if len(data) != BY_NAME[dtype].size * math.prod(shape):
        raise ValueError
    return Stored(dtype, shape, data)


def shapes_of(graph: Graph) -> dict[str, Shape]:
    """Of the inputs; () where the graph tells none."""
    found = {v.name: tensor_type(v.type) for v in graph.inputs}
    return {name: tuple(t.shape) if t is not None and t.shape is not None else () for name, t in found.items()}


def in_javascript(places: Places) -> dict[str, Any]:
    """As JSON with the names that the classes have in JavaScript."""
    parts = (("entries", places.entries), ("fed", places.fed))
    return {kind: [{_camel(k): v for k, v in asdict(x).items()} for x in found] for kind, found in parts}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
