"""The inputs of a graph for adapters, and where in them the numbers of an adapter go.
Twin of web/page/training/adapter_places.js.

A run feeds two matrices: the A of all modules as rows below one another, transposed, and the B likewise. Their columns
are the ranks of the adapters that are active in this run, side by side, so that one Program serves each adapter,
several at once, and none (no columns). Models that were exported with inputs for adapters get these fed.
web/page/training/adapter_places.js is the twin of `AdapterInputs.places`.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyruntime.errors import InvalidInput, InvalidModel
from pyruntime.ir.dtype import BY_NAME
from pyruntime.onnx.graph import Graph, tensor_type
from pyruntime.training.adapters.adapter_file import Adapter, Pair
from pyruntime.training.adapters.sites import plain_name
from pyruntime.training.files.safetensors import Stored

ALL_A, ALL_B, RANK = "adapters:A", "adapters:B", "adapters:rank"
Shape = tuple[Any, ...]


class Rows(NamedTuple):
    """The rows of a module: `rows_a` of ALL_A from `first_a` on, one for each column of its input, and `rows_b` of
    ALL_B from `first_b` on, one for each column of its output"""

    first_a: int
    rows_a: int
    first_b: int
    rows_b: int


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

    @property
    def rank(self) -> int:
        """Columns of ALL_A and ALL_B."""
        return max((e.rank for e in self.entries), default=0)


@dataclass(slots=True)
class AdapterInputs:
    """shapes: of all inputs of the graph, by name
    rows_a, rows_b: of ALL_A and ALL_B; 0 if the graph does not have them
    modules: the rows of each module, by its `key`
    slots: of each module for whose A and B the model has inputs the names of these, by its `key`
    defaults: what is fed to inputs of the model in runs without adapters"""

    shapes: Mapping[str, Shape]
    rows_a: int = 0
    rows_b: int = 0
    modules: dict[str, list[Rows]] = field(default_factory=dict)
    slots: dict[str, tuple[str, str]] = field(default_factory=dict)
    defaults: dict[str, Stored] = field(default_factory=dict)

    def places(self, adapter: Adapter, name: str) -> Places:
        """name: of the adapter, for messages. Errors: InvalidInput for a module that has no place"""
        if adapter.tensors.keys() <= self.shapes.keys():
            return Places(fed=tuple(Fed(n, n, _rank_axis(n)) for n in adapter.tensors))
        entries: list[Entry] = []
        fed: list[Fed] = []
        for pair in adapter.pairs():
            if slot := self.slots.get(key(pair.module)):
                fed += self._fed(adapter, pair, slot)
            else:
                entries += [_entry(adapter, pair, rows, name) for rows in self.rows(adapter, pair, name)]
        return Places(tuple(entries), tuple(fed))

    def rows(self, adapter: Adapter, pair: Pair, name: str) -> Sequence[Rows]:
        if found := self.modules.get(key(pair.module)):
            return found
        known = ", ".join([*self.modules, *self.slots][:6]) or "none"
        hint = f"export the Program from a session with adapters of such modules; it has places for {known}"
        raise InvalidInput(f'the Program has no place for "{pair.module}" of adapter "{name}"', hint=hint)

    def _fed(self, adapter: Adapter, pair: Pair, slot: tuple[str, str]) -> list[Fed]:
        """The pair of a PEFT adapter as inputs of the model: A (fan_in, rank), B (rank, fan_out)."""
        found = []
        for n, (name, tensor) in enumerate(zip(slot, (pair.a, pair.b), strict=True)):
            shape, declared = adapter.tensors[tensor].shape, self.shapes[name]
            wanted = declared[n] if declared else None
            is_transposed = isinstance(wanted, int) and shape[n] != wanted
            if isinstance(wanted, int) and wanted not in shape:
                raise InvalidInput(f'"{tensor}" {list(shape)} does not fit input "{name}" {list(declared)}')
            found.append(Fed(name, tensor, 1 - n, is_transposed, pair.scale if n else 1.0))
        return found

    # ── in files and for pages ───────────────────────────────────────────────────────────────────────────────────

    def described(self) -> dict[str, Any]:
        """As JSON, for `from_program` and for pages (AdaptersInfo in web/common/protocol.js)."""
        return {
            "rowsA": self.rows_a,
            "rowsB": self.rows_b,
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
        try:
            found = cls(
                shapes_of(graph), _count(described["rowsA"]), _count(described["rowsB"]),
                {name: [Rows(*map(_count, rows)) for rows in found] for name, found in described["modules"].items()},
                {name: (a, b) for name, (a, b) in described["slots"].items()},
                {n: _stored(t) for n, t in described["defaults"].items()},
            )  # fmt: skip
            if not found._fits():
                raise ValueError
        except (AttributeError, KeyError, TypeError, ValueError):
            text = "the program is damaged: its places for adapters do not fit its inputs"
            raise InvalidModel(text, hint="export it again") from None
        return found

    def _fits(self) -> bool:
        """Whether all inputs and rows are there."""
        sizes = ((ALL_A, self.rows_a), (ALL_B, self.rows_b))
        rows = [row for several in self.modules.values() for row in several]
        names = {*self.defaults, *(n for slot in self.slots.values() for n in slot)}
        return (
            all(self.shapes.get(name, (0,))[:1] == (size,) for name, size in sizes)
            and all(r.first_a + r.rows_a <= self.rows_a and r.first_b + r.rows_b <= self.rows_b for r in rows)
            and names <= self.shapes.keys()
        )


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


def key(module: str) -> str:
    """The name of a module by which files and models are compared."""
    return ".".join(plain_name(module))


def shapes_of(graph: Graph) -> dict[str, Shape]:
    """Of the inputs; () where the graph tells none."""
    found = {v.name: tensor_type(v.type) for v in graph.inputs}
    return {name: tuple(t.shape) if t is not None and t.shape is not None else () for name, t in found.items()}


def _rank_axis(name: str) -> int:
    if "lora_A" in name:
        return 1
    return 0 if "lora_B" in name else -1


def _entry(adapter: Adapter, pair: Pair, rows: Rows, name: str) -> Entry:
    """Errors: InvalidInput for matrices of other sizes"""
    a, b = adapter.tensors[pair.a].shape, adapter.tensors[pair.b].shape
    is_peft = (a[1], b[0]) == (rows.rows_a, rows.rows_b) and a[0] == b[1]
    if not is_peft and ((a[0], b[1]) != (rows.rows_a, rows.rows_b) or a[1] != b[0]):
        text = f'adapter "{name}" does not fit "{key(pair.module)}": it is {rows.rows_a} to {rows.rows_b}'
        raise InvalidInput(f'{text}, "{pair.a}" is {list(a)}, "{pair.b}" is {list(b)}')
    first_a, rows_a, first_b, rows_b = rows
    return Entry(pair.a, pair.b, first_a, first_b, rows_a, rows_b, a[0] if is_peft else a[1], is_peft, pair.scale)
