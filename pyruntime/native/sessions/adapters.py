"""Joins the matrices of adapters for the runs of native sessions. Twin of web/run/joined_adapters.js."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyruntime.errors import InvalidInput
from pyruntime.native.sessions.program_file import Exported
from pyruntime.native.sessions.stored_arrays import NUMPY_ARRAYS, array_of
from pyruntime.onnx.graph import tensor_type
from pyruntime.runtime.adapter_places import ALL_A, ALL_B, ALL_MAGNITUDES, NO_MAGNITUDE, Fed, matrix_shape, rank_of
from pyruntime.training.adapters.adapter_file import Adapter
from pyruntime.training.adapters.adapter_inputs import AdapterInputs
from pyruntime.training.adapters.session_adapters import Active, SessionAdapters
from pyruntime.training.files.safetensors import Stored


class NativeAdapters(SessionAdapters[np.ndarray]):
    def array(self, t: Stored) -> np.ndarray:
        return NUMPY_ARRAYS.feed(t)

    def joined(self, inputs: AdapterInputs, active: Sequence[Active]) -> dict[str, np.ndarray]:
        found = _stacked(inputs, active) if inputs.rows_a else {}
        of_input: dict[str, list[tuple[Fed, Active]]] = {}
        for one in active:
            for fed in one.places.fed:
                of_input.setdefault(fed.input, []).append((fed, one))
        types = {v.name: tensor_type(v.type) for v in self.graph.inputs}
        return found | {name: _side_by_side(name, parts, types[name]) for name, parts in of_input.items()}


def adapters_of_program(exported: Exported, given: Mapping[str, Any]) -> NativeAdapters:
    """given: the session's option `adapters`. Errors: InvalidInput if the file has no places for any"""
    described = exported.header["types"].get("adapters")
    if given and described is None:
        text = "this Program was exported without places for adapters"
        raise InvalidInput(text, hint="export it from a session with adapters, or open the ONNX model")
    return NativeAdapters(exported.graph, given, described)


def _stacked(inputs: AdapterInputs, active: Sequence[Active]) -> dict[str, np.ndarray]:
    """ALL_A and ALL_B: modules below one another, the ranks of the adapters side by side; magnitudes of DoRA."""
    ranks = [rank_of(one.places.entries) for one in active]
    all_a = np.zeros((inputs.rows_a, sum(ranks)), np.float32)
    all_b = np.zeros((inputs.rows_b, sum(ranks)), np.float32)
    magnitudes = np.full(inputs.rows_b, NO_MAGNITUDE, np.float32)
    first = 0
    for one, rank in zip(active, ranks, strict=True):
        for e in one.places.entries:
            a, b = (_matrix(one.adapter, name) for name in (e.a, e.b))
            columns = slice(first, first + e.rank)
            all_a[e.first_a : e.first_a + e.rows_a, columns] = a.T if e.is_peft else a
            scaled = (b if e.is_peft else b.T) * np.float32(e.scale * one.weight)
            all_b[e.first_b : e.first_b + e.rows_b, columns] = scaled
            if e.magnitudes:
                magnitudes[e.first_b : e.first_b + e.rows_b] = array_of(one.adapter.tensors[e.magnitudes]).ravel()
        first += rank
    return {ALL_A: all_a, ALL_B: all_b, **({ALL_MAGNITUDES: magnitudes} if inputs.has_magnitudes else {})}


def _matrix(adapter: Adapter, name: str) -> np.ndarray:
    array = array_of(adapter.tensors[name])
    return array.reshape(matrix_shape(array.shape))


def _side_by_side(name: str, parts: Sequence[tuple[Fed, Active]], kind: Any) -> np.ndarray:
    """An input of the model, in its type: the tensors of all active adapters along the axis of the rank."""
    axis = parts[0][0].axis
    if len(parts) > 1 and axis < 0:
        raise InvalidInput(f'several active adapters have a tensor for input "{name}"', hint="activate one")
    joined = np.concatenate([_scaled(*part) for part in parts], axis) if len(parts) > 1 else _scaled(*parts[0])
    dtype = kind.dtype.name if kind is not None else joined.dtype.name
    return np.ascontiguousarray(joined, dtype) if dtype != "bfloat16" else np.ascontiguousarray(joined)


def _scaled(fed: Fed, one: Active) -> np.ndarray:
    """The tensor, times its factors if it is B."""
    array = array_of(one.adapter.tensors[fed.tensor])
    array = array.T if fed.is_transposed else array
    factor = fed.scale * (one.weight if fed.axis == 0 else 1.0)
    return array if factor == 1 else array * np.float32(factor)
