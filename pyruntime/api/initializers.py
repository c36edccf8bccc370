"""Replaces weights of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyruntime.api.ort_value import OrtValue
from pyruntime.errors import InvalidInput
from pyruntime.native.memory.arrays import to_storage
from pyruntime.onnx.graph import Graph, Weight
from pyruntime.onnx.sources import MemorySource


def with_initializers(graph: Graph, given: Mapping[str, OrtValue]) -> Graph:
    """The graph with these tensors in place of its initializers. Errors: InvalidInput for an unknown name, or a tensor
    of another type or shape"""
    return replace(graph, weights={**graph.weights, **{n: _weight(graph, n, v) for n, v in given.items()}})


def _weight(graph: Graph, name: str, value: OrtValue) -> Weight:
    old = graph.weights.get(name)
    if old is None:
        raise InvalidInput(f'the model has no initializer "{name}"', hint="names of initializers are case-sensitive")
    shape = tuple(value.shape())
    if (value.element_type(), shape) != (old.dtype.code, old.shape):
        has = f"{old.dtype} {list(old.shape)}"
        raise InvalidInput(f'initializer "{name}" is {has}, its replacement {value.data_type()} {list(shape)}')
    if old.dtype.bits < 8:
        raise InvalidInput(f'initializer "{name}" of {old.dtype} cannot be replaced: its elements are packed')
    data = to_storage(value.numpy()).tobytes()
    return replace(old, source=MemorySource(data), offset=0, size=len(data))
