"""Maps at a session's border: programs feed and get dicts, the compiled Program takes and gives tensors.

The operators of ai.onnx.ml that make or take maps stand at the ends of a graph, where converters of scikit-learn
pipelines put them; there each becomes an Identity of the tensor that it stands for. Elsewhere their definitions refuse
them.

Spec: ZipMap, DictVectorizer and CastMap of https://onnx.ai/onnx/operators/#ai-onnx-ml
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.errors import InvalidInput
from pyruntime.frontend.zip_maps import classes, identity, zip_maps
from pyruntime.ir.dtype import F32, I64, STRING, DType
from pyruntime.onnx.graph import Graph, MapType, Node, TensorType, Value

_DOMAIN = "ai.onnx.ml"
_KEYS = {I64: (int, np.integer), STRING: (str,)}
_CASTS: dict[str, tuple[DType, Callable[[Any], Any], Any]] = {
    "TO_FLOAT": (F32, float, 0.0),
    "TO_INT64": (I64, lambda x: int(float(x)), 0),
    "TO_STRING": (STRING, lambda x: x if isinstance(x, str) else f"{x:f}", "0.f"),  # as onnxruntime writes them
}


class Maps:
    """declared: the graph as the model has it; graph: the same with tensors in place of maps."""

    def __init__(self, declared: Graph) -> None:
        self.declared = declared
        self._inputs: dict[str, MapType] = {}  # graph input -> its type
        self._columns: dict[str, Node] = {}  # input of `graph` -> what makes it of a map
        self._outputs = zip_maps(declared)  # graph output -> its ZipMap
        maps = {v.name: v.type for v in declared.inputs if isinstance(v.type, MapType)}
        nodes = []
        for node in declared.nodes:
            if node.outputs and self._outputs.get(node.outputs[0]) is node:
                node = identity(node, node.inputs[0])
            elif node.domain == _DOMAIN and node.op in ("DictVectorizer", "CastMap") and node.inputs[0] in maps:
                column = f"{node.inputs[0]} as {node.outputs[0]}"
                self._inputs[node.inputs[0]] = maps[node.inputs[0]]
                self._columns[column] = node
                node = identity(node, column)
            nodes.append(node)
        self.graph = self._with_tensors(nodes) if self else declared

    def __bool__(self) -> bool:
        return bool(self._outputs or self._columns)

    def _with_tensors(self, nodes: Sequence[Node]) -> Graph:
        inputs = [v for v in self.declared.inputs if v.name not in self._inputs]
        inputs += [Value(name, self._column_type(node)) for name, node in self._columns.items()]
        outputs = [Value(v.name, None) if v.name in self._outputs else v for v in self.declared.outputs]
        values = {name: t for name, t in self.declared.values.items() if name not in self._outputs}
        return replace(self.declared, inputs=tuple(inputs), outputs=tuple(outputs), nodes=tuple(nodes), values=values)

    def _column_type(self, node: Node) -> TensorType:
        if node.op == "CastMap":
            dense = node.attrs.get("map_form", "DENSE") == "DENSE"
            return TensorType(_cast_of(node)[0], (1, None if dense else _int(node.attrs.get("max_map", 1))))
        value = self._inputs[node.inputs[0]].value
        return TensorType(value.dtype if isinstance(value, TensorType) else None, (1, len(_vocabulary(node))))

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def entered(self, feeds: Any) -> Any:
        """The feeds with tensors in place of maps. Errors: InvalidInput for what is no map of the input's type."""
        if not self._columns or not isinstance(feeds, Mapping):
            return feeds
        out = {name: x for name, x in feeds.items() if name not in self._inputs}
        for name, kind in self._inputs.items():
            if name not in feeds:
                raise InvalidInput(f'input "{name}" is missing', hint=f"inputs are {[*self._inputs]}")
            x = feeds[name]
            if not isinstance(x, Mapping) or not all(isinstance(key, _KEYS[kind.key]) for key in x):
                raise InvalidInput(f'input "{name}" is a map: a dict with keys of {kind.key} is expected, got {x!r}')
        for column, node in self._columns.items():
            out[column] = self._column(node, feeds[node.inputs[0]])
        return out

    def _column(self, node: Node, x: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
        """A map as a row."""
        try:
            if node.op == "CastMap":
                return _cast(node, x)
            dtype = self._column_type(node).dtype or F32
            absent: Any = "" if dtype is STRING else 0
            row = [x.get(key, absent) for key in _vocabulary(node)]
            return np.array([row], object if dtype is STRING else dtype.name)
        except InvalidInput:
            raise
        except (ValueError, TypeError, OverflowError) as e:
            raise InvalidInput(f'input "{node.inputs[0]}" has a value of another type: {e}', node=node.label) from None

    def left(self, name: str, result: Any) -> Any:
        """What a program gets of an output: for one of a ZipMap a dict for each row, by class."""
        node = self._outputs.get(name)
        if node is None:
            return result
        rows = result[None] if result.ndim == 1 else result
        labels: Any = classes(node)
        if rows.ndim != 2 or rows.shape[1] != len(labels):
            raise InvalidInput(f"{len(labels)} classes do not fit scores of shape {result.shape}", node=node.label)
        return [dict(sorted(zip(labels, row, strict=True))) for row in rows.tolist()]


def _vocabulary(node: Node) -> Sequence[Any]:
    found = node.attrs.get("string_vocabulary") or node.attrs.get("int64_vocabulary") or ()
    assert isinstance(found, tuple | list)
    return found


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _cast_of(node: Node) -> tuple[DType, Callable[[Any], Any], Any]:
    return _CASTS[str(node.attrs.get("cast_to", "TO_FLOAT"))]


def _cast(node: Node, x: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
    dtype, convert, absent = _cast_of(node)
    row = [convert(x[key]) for key in sorted(x)]
    if node.attrs.get("map_form", "DENSE") != "DENSE":
        row = [absent] * _int(node.attrs.get("max_map", 1))
        for key, value in x.items():
            if key < 0:
                raise InvalidInput(f"key {key} is negative", node=node.label)
            if key < len(row):  # onnxruntime, too, leaves out what is beyond
                row[key] = convert(value)
    return np.array([row], object if dtype is STRING else dtype.name)


__all__ = ["Maps"]
