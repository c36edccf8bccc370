"""The same case without numbers at the edges of their types. One peer alone shows no more there than what it makes of
them itself; on plain numbers it must agree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from fuzz.case import Case
from fuzz.compare import wide
from fuzz.draw import is_float, is_int
from fuzz.node import nodes, tensor

LEAST, MOST = 2.0**-6, 64.0  # magnitudes of floats; all types have them
COUNT = 1000  # of integers, which are sizes and places


def calmed(case: Case) -> Case | None:
    """None if there is nothing to calm."""
    model = onnx.load_from_string(case.model)
    for weight in model.graph.initializer:
        if weight.data_type != onnx.TensorProto.STRING:
            weight.CopyFrom(tensor(_plain(onnx.numpy_helper.to_array(weight)), weight.name))
    for node in nodes(model.graph):
        _calm(node.attribute)
    runs = tuple({name: _plain(x) for name, x in feeds.items()} for feeds in case.runs)
    same = model.SerializeToString() == onnx.load_from_string(case.model).SerializeToString()
    if same and all(a[name] is b[name] for a, b in zip(runs, case.runs, strict=True) for name in a):
        return None
    return replace(case, model=model.SerializeToString(), runs=runs)


def _calm(attributes: Iterable[Any]) -> None:
    for given in attributes:
        if given.type == onnx.AttributeProto.FLOAT:
            given.f = float(_plain(np.float32(given.f)))
        elif given.type == onnx.AttributeProto.INT:
            given.i = int(_plain(np.int64(given.i)))


def _plain(x: Any) -> Any:
    """The same object where there is nothing to change."""
    if isinstance(x, list):
        made = [_plain(v) for v in x]
        return x if all(a is b for a, b in zip(made, x, strict=True)) else made
    if isinstance(x, np.ndarray | np.generic) and is_float(x.dtype):
        return _floats(x)
    if isinstance(x, np.ndarray | np.generic) and is_int(x.dtype) and x.dtype.itemsize > 1:
        far = np.abs(wide(x).astype(np.float64)) > COUNT
        return np.where(far, x % np.asarray(10, x.dtype), x).astype(x.dtype) if far.any() else x
    return x


def _floats(x: Any) -> Any:
    with np.errstate(all="ignore"):
        v = wide(x).astype(np.float64)
        made = np.where(v != v, 1.0, np.clip(v, -MOST, MOST))
        made = np.where((made != 0) & (np.abs(made) < LEAST), np.copysign(LEAST, made), made)
        return x if (made == v).all() else made.astype(x.dtype)


__all__ = ["calmed"]
