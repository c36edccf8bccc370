"""The same case without numbers at the edges of their types. There peers overflow and wrap in ways of their own, so
that one peer alone, or two that do not agree with each other, prove nothing; on plain numbers one must agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from fuzz.case import Case
from fuzz.compare import widen
from fuzz.draw import is_float, is_int
from fuzz.node import tensor

# Magnitudes of plain floats: the least, unless the type's least normal number is larger, and the largest, by bytes of
# the type. The limits are wide, so that little excuses a peer: products, and sums of them, neither overflow nor vanish.
LEAST = 2.0**-60
MOST = {1: 64.0, 2: 64.0, 4: 2.0**15, 8: 2.0**15}
COUNT = {2: 1 << 10, 4: 1 << 15, 8: 1 << 15}  # largest magnitude of integers, by bytes of the type
# Of int8: on processors without VNNI, onnxruntime adds two products of uint8 and int8 in 16 bits, which saturate.
CODE = 64


def with_plain_numbers(case: Case) -> Case | None:
    """None if all numbers are plain."""
    model = onnx.load_from_string(case.model)
    before = model.SerializeToString()
    _simplify_graph(model.graph)
    runs = tuple({name: _plain(x) for name, x in feeds.items()} for feeds in case.runs)
    plain = model.SerializeToString()
    if plain == before and all(a[name] is b[name] for a, b in zip(runs, case.runs, strict=True) for name in a):
        return None
    return replace(case, model=plain, runs=runs)


def _simplify_graph(graph: Any) -> None:
    for weight in graph.initializer:
        _simplify_tensor(weight)
    for node in graph.node:
        for attribute in node.attribute:
            _simplify_attribute(attribute)


def _simplify_attribute(attribute: Any) -> None:
    kinds = onnx.AttributeProto
    if attribute.type == kinds.FLOAT:
        attribute.f = float(_plain(np.float32(attribute.f)))
    elif attribute.type == kinds.INT:
        attribute.i = int(_plain(np.int64(attribute.i)))
    elif attribute.type == kinds.FLOATS:
        attribute.floats[:] = _plain(np.array(attribute.floats, np.float32)).tolist()
    elif attribute.type == kinds.INTS:
        attribute.ints[:] = _plain(np.array(attribute.ints, np.int64)).tolist()
    elif attribute.type == kinds.TENSOR:
        _simplify_tensor(attribute.t)
    elif attribute.type == kinds.GRAPH:
        _simplify_graph(attribute.g)


def _simplify_tensor(weight: Any) -> None:
    if weight.data_type != onnx.TensorProto.STRING:
        x = onnx.numpy_helper.to_array(weight)
        if (made := _plain(x)) is not x:
            weight.CopyFrom(tensor(made, weight.name))


def _plain(x: Any) -> Any:
    """The same object if there is nothing to change."""
    if isinstance(x, list):
        made = [_plain(v) for v in x]
        return x if all(a is b for a, b in zip(made, x, strict=True)) else made
    if isinstance(x, np.ndarray | np.generic) and is_float(x.dtype):
        return _floats(x)
    if isinstance(x, np.ndarray | np.generic) and x.dtype == np.int8:
        made = np.clip(x, -CODE, CODE)
        return x if (made == x).all() else made
    if isinstance(x, np.ndarray | np.generic) and is_int(x.dtype) and x.dtype.itemsize > 1:
        far = np.abs(widen(x).astype(np.float64)) > COUNT[x.dtype.itemsize]
        return np.where(far, x % np.asarray(10, x.dtype), x).astype(x.dtype) if far.any() else x
    return x


def _floats(x: Any) -> Any:
    least, most = max(LEAST, float(ml_dtypes.finfo(x.dtype).tiny)), MOST[x.dtype.itemsize]
    with np.errstate(all="ignore"):
        v = widen(x).astype(np.float64)
        made = np.where(v != v, 1.0, np.clip(v, -most, most))
        made = np.where((made != 0) & (np.abs(made) < least), np.copysign(least, made), made)
        return x if (made == v).all() else made.astype(x.dtype)


__all__ = ["with_plain_numbers"]
