"""Reads and writes checkpoints of onnxruntime-training: parameters, moments of the optimiser and properties, as
FlatBuffers.

Spec: https://github.com/microsoft/onnxruntime/blob/v1.19.2/onnxruntime/core/flatbuffers/schema/ort_training_checkpoint.fbs
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyruntime.errors import InvalidModel
from pyruntime.ir.dtype import F32
from pyruntime.onnx.flatbuffer import Buffer, Table
from pyruntime.onnx.graph import Source, Weight
from pyruntime.onnx.parse_tensors import dtype_of
from pyruntime.onnx.sources import MemorySource

IDENTIFIER = b"ODTC"
VERSION = 2
_NAME, _DIMS, _DATA_TYPE, _RAW = 0, 2, 3, 4  # fields of a tensor
Property = int | float | str
Moments = dict[str, dict[str, Weight]]


@dataclass(slots=True)
class Checkpoint:
    """trained, frozen: parameters by name; is_nominal: whether these have no values; moments: of the optimiser, by
    parameter; step: number of steps so far; rate: of learning; properties: the user's"""

    trained: dict[str, Weight]
    frozen: dict[str, Weight]
    is_nominal: bool = False
    moments: Moments = field(default_factory=dict)
    step: int = 0
    rate: float = 0.0
    properties: dict[str, Property] = field(default_factory=dict)


def weight_of(name: str, data: bytes, shape: tuple[int, ...]) -> Weight:
    """A float32 weight of these bytes."""
    return Weight(name, F32, shape, MemorySource(data), 0, len(data))


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_checkpoint(source: Source) -> Checkpoint:
    """Errors: InvalidModel for bytes that are no such checkpoint, with the byte at fault"""
    if source.size < 8 or source.read(4, 4) != IDENTIFIER:
        raise InvalidModel(
            "this is no checkpoint of onnxruntime-training", hint="give the file that generate_artifacts made"
        )
    root = Buffer(source).root()
    module = root.table(1)
    if module is None:
        raise InvalidModel("the checkpoint has no parameters")
    if module.number(3, "b"):
        raise InvalidModel("the checkpoint has its parameters in another file", hint="save it below 2 GB in one file")
    is_nominal = bool(module.number(2, "b"))
    trained, frozen = ({w.name: w for w in [_tensor(t, is_nominal) for t in module.tables(n)]} for n in (0, 1))
    found = Checkpoint(trained, frozen, is_nominal, properties=_properties(root.table(3)))
    groups = root.tables(2)
    if len(groups) > 1:
        raise InvalidModel(f"the checkpoint has {len(groups)} groups of parameters, only one is supported")
    for group in groups:
        found.step, found.rate = group.number(1, "q"), group.real(2)
        for one in group.tables(3):
            found.moments[one.text(0)] = {w.name: w for w in [_tensor(t, False) for t in one.tables(1)]}
    return found


def _tensor(table: Table, is_nominal: bool) -> Weight:
    name = table.text(_NAME)
    what = f'parameter "{name}" at byte {table.at}'
    dtype = dtype_of(table.number(_DATA_TYPE), what)
    shape = tuple(int(d) for d in table.numbers(_DIMS, "q"))
    start, count = table.span(_RAW, 1)
    if is_nominal:
        return Weight(name, dtype, shape)
    if min(shape, default=0) < 0 or count * 8 != math.prod(shape) * dtype.bits:
        raise InvalidModel(f"{what} of type {dtype} and shape {list(shape)} has {count} bytes")
    return Weight(name, dtype, shape, table.buffer.source, start, count)


def _properties(bag: Table | None) -> dict[str, Property]:
    if bag is None:
        return {}
    kinds: tuple[Callable[[Table], Property], ...] = (
        lambda t: t.number(1, "q"), lambda t: t.real(1), lambda t: t.text(1),
    )  # fmt: skip
    return {t.text(0): read(t) for n, read in enumerate(kinds) for t in bag.tables(n)}


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

Part = Callable[["_Writer"], int]  # writes something, and tells where it is
Field = tuple[str, int | float] | Part | None


def write_checkpoint(given: Checkpoint) -> bytes:
    def parameters(weights: Mapping[str, Weight]) -> Part:
        return _tables([_tensor_fields(w, given.is_nominal) for w in weights.values()])

    flag: Field = ("b", 1) if given.is_nominal else None
    module = _table([parameters(given.trained), parameters(given.frozen), flag])
    each = [
        [_text(name), _tables([_tensor_fields(w, False) for w in tensors.values()])]
        for name, tensors in given.moments.items()
    ]
    group: list[Field] = [_text("group0"), ("q", given.step), ("f", given.rate), _tables(each)]
    bag = [
        _tables([[_text(k), write(v)] for k, v in given.properties.items() if type(v) is kind])
        for kind, write in ((int, _whole), (float, _real), (str, _text))
    ]
    root = _table(
        [("i", VERSION), module, _tables([group]) if each else None, _table(bag) if given.properties else None]
    )
    writer = _Writer()
    struct.pack_into("<I", writer.out, 0, root(writer))
    return bytes(writer.out)


def _whole(value: Property) -> Field:
    return "q", int(value)


def _real(value: Property) -> Field:
    return "f", float(value)


def _tensor_fields(w: Weight, is_empty: bool) -> list[Field]:
    data = b"" if is_empty else w.read()
    dims = _vector(struct.pack(f"<{len(w.shape)}q", *w.shape), len(w.shape), 8)
    return [_text(w.name), None, dims, ("i", w.dtype.code), _vector(data, len(data), 16)]


class _Writer:
    """Writes what refers to something before what it refers to, because offsets point forward."""

    def __init__(self) -> None:
        self.out = bytearray(4) + IDENTIFIER

    def align(self, width: int, extra: int = 0) -> int:
        """Fill up so that the byte after `extra` more ones is at a multiple of width."""
        self.out += bytes(-(len(self.out) + extra) % width)
        return len(self.out)

    def point(self, at: int, part: Part) -> None:
        target = part(self)
        struct.pack_into("<I", self.out, at, target - at)


def _vector(data: bytes, count: int, width: int) -> Part:
    def write(writer: _Writer) -> int:
        at = writer.align(width, 4)
        writer.out += struct.pack("<I", count) + data
        return at

    return write


def _text(value: Property) -> Part:
    data = str(value).encode()
    return _vector(data + b"\0", len(data), 4)


def _table(fields: Sequence[Field]) -> Part:
    """A table whose fields have 8 bytes each, so that all are aligned."""

    def write(writer: _Writer) -> int:
        vtable = struct.pack("<HH", 4 + 2 * len(fields), 8 + 8 * len(fields))
        vtable += struct.pack(f"<{len(fields)}H", *[8 + 8 * n if f else 0 for n, f in enumerate(fields)])
        at = writer.align(8, len(vtable)) + len(vtable)
        writer.out += vtable + struct.pack("<i", len(vtable)) + bytes(4 + 8 * len(fields))
        for n, one in enumerate(fields):
            place = at + 8 + 8 * n
            if isinstance(one, tuple):
                struct.pack_into("<" + one[0], writer.out, place, one[1])
            elif one is not None:
                writer.point(place, one)
        return at

    return write


def _tables(each: Sequence[Sequence[Field]]) -> Part:
    def write(writer: _Writer) -> int:
        at = writer.align(4)
        writer.out += struct.pack("<I", len(each)) + bytes(4 * len(each))
        for n, fields in enumerate(each):
            writer.point(at + 4 + 4 * n, _table(fields))
        return at

    return write
