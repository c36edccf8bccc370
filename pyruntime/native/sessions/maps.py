"""Maps as inputs and outputs of a session: converts between the callers' dicts and the Program's tensors
(`pyruntime.frontend.maps`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pyruntime.errors import InvalidInput
from pyruntime.frontend.maps import Border, Column, classes
from pyruntime.ir.dtype import F32, I64, STRING, DType
from pyruntime.onnx.graph import Value

_KEYS = {I64: (int, np.integer), STRING: (str,)}
# for CastMap: the conversion of a value, and the value of an absent key
_CASTS: dict[DType, tuple[Callable[[Any], Any], Any]] = {
    F32: (float, 0.0),
    I64: (lambda x: int(float(x)), 0),
    STRING: (lambda x: x if isinstance(x, str) else f"{x:f}", "0.f"),  # in onnxruntime's spelling
}


class Maps:
    """The maps among a graph's inputs and outputs."""

    def __init__(self, border: Border) -> None:
        self._border = border

    def __bool__(self) -> bool:
        return bool(self._border.scores or self._border.columns)

    def outputs(self, declared: Sequence[Value], compiled: Sequence[Value]) -> list[Value]:
        """The outputs: tensors with their inferred types, maps with the types that the model declares."""
        tensors = {v.name: v for v in compiled if v.name not in self._border.scores}
        return [tensors.get(v.name, v) for v in declared]

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def to_tensors(self, feeds: Any) -> Any:
        """The feeds with tensors in place of maps. Errors: InvalidInput for a map that is missing or of another type"""
        columns = self._border.columns
        if not columns or not isinstance(feeds, Mapping):
            return feeds
        kinds = {column.source: column.kind for column in columns.values()}
        for name, kind in kinds.items():
            if name not in feeds:
                raise InvalidInput(f'input "{name}" is missing', hint=f"inputs are {[*kinds]}")
            x = feeds[name]
            if not isinstance(x, Mapping) or not all(isinstance(key, _KEYS[kind.key]) for key in x):
                raise InvalidInput(f'input "{name}" is a map: a dict with keys of {kind.key} is expected, got {x!r}')
        out = {name: x for name, x in feeds.items() if name not in kinds}
        return out | {name: _row(column, feeds[column.source]) for name, column in columns.items()}

    def from_tensor(self, name: str, result: Any) -> Any:
        """Convert an output for the caller: that of a ZipMap becomes a dict for each row, by class."""
        node = self._border.scores.get(name)
        if node is None:
            return result
        rows = result[None] if result.ndim == 1 else result
        labels: Any = classes(node)
        if rows.ndim != 2 or rows.shape[1] != len(labels):
            raise InvalidInput(f"{len(labels)} classes do not fit scores of shape {result.shape}", node=node.label)
        return [dict(sorted(zip(labels, row, strict=True))) for row in rows.tolist()]


def _row(column: Column, x: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
    """A map as a row."""
    node, dtype = column.node, column.dtype
    try:
        if column.keys is None:
            values = _cast(column, x)
        else:
            values = [x.get(key, "" if dtype is STRING else 0) for key in column.keys]
        return np.array([values], object if dtype is STRING else dtype.name)
    except InvalidInput:
        raise
    except (ValueError, TypeError, OverflowError) as e:
        raise InvalidInput(f'input "{column.source}" has a value of another type: {e}', node=node.label) from None


def _cast(column: Column, x: Mapping[Any, Any]) -> list[Any]:
    convert, absent = _CASTS[column.dtype]
    if column.length is None:
        return [convert(x[key]) for key in sorted(x)]
    row = [absent] * column.length
    for key, value in x.items():
        if key < 0:
            raise InvalidInput(f"key {key} is negative", node=column.node.label)
        if key < len(row):  # like onnxruntime, ignore keys beyond the length
            row[key] = convert(value)
    return row
