"""Runs an ONNX model in the reference evaluator, without a provider: any operator, but slow, so small cases only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx

import pyruntime.ops  # noqa: F401
from pyruntime.errors import NeedsValue
from pyruntime.frontend import interpreter
from pyruntime.frontend.trace_graph import SequenceSpec, TensorSpec, fix_dims, trace_graph
from pyruntime.ir import dtype as dt
from pyruntime.ir.symbol import Symbol
from pyruntime.onnx.graph import Value
from pyruntime.onnx.load import load
from pyruntime.onnx.weight_values import elements


def numpy_dtype(d: dt.DType) -> Any:
    return onnx.helper.tensor_dtype_to_np_dtype(d.code) if d is not dt.STRING else np.dtype(object)


def spec_of(x: Any, value: bool = False, symbolic: bool = False) -> Any:
    if x is None:
        return None
    if isinstance(x, list):
        return SequenceSpec(tuple(spec_of(i, symbolic=symbolic) for i in x))
    x = np.asarray(x)
    d = dt.STRING if x.dtype.kind in "OUS" else dt.BY_CODE[onnx.helper.np_dtype_to_tensor_dtype(x.dtype)]
    dims = (None,) * x.ndim if symbolic and not value else x.shape
    return TensorSpec(d, dims, tuple(storage(x)) if value else None)


def storage(x: np.ndarray) -> list[Any]:
    """Flat Python values as the engine stores them (float8 and float4 as bit patterns)."""
    if x.dtype.kind == "O" or x.dtype.kind in "US":
        return [str(v) for v in x.ravel()]
    d = dt.BY_CODE[onnx.helper.np_dtype_to_tensor_dtype(x.dtype)]
    if d in dt.FLOAT8 or d is dt.F4E2M1:
        return x.ravel().view(np.uint8).tolist()
    if d is dt.BF16 or d.bits < 8:
        return x.ravel().astype(np.float32 if d.is_float else np.int32).tolist()
    return x.ravel().tolist()


def run(model: bytes, feeds: dict[str, Any], symbolic: bool = False) -> list[Any]:
    """Outputs as NumPy arrays, lists for sequences, None for empty optionals. symbolic: trace for feeds of any shape of
    the same rank."""
    graph = load(model)
    fixed: set[str] = set()
    dims: set[Symbol] = set()
    constants: dict[str, TensorSpec] = {}
    while True:
        specs = {k: _settled(k, v, spec_of(v, k in fixed, symbolic), dims) for k, v in feeds.items()}
        try:
            traced = trace_graph(graph, specs, elements, constants)
            break
        except NeedsValue as e:
            if e.symbols - dims:
                dims |= e.symbols
                continue
            if e.name in feeds and e.name not in fixed:
                fixed.add(e.name)
                continue
            maker = next((n for n, node in enumerate(graph.nodes) if e.name in node.outputs), None)
            if maker is None or e.name in constants:
                raise
            part = replace(graph, nodes=graph.nodes[: maker + 1], outputs=(Value(e.name, None),))
            traced = trace_graph(part, specs, elements, constants)
            found = run_traced(traced, feeds)[e.name]
            constants[e.name] = TensorSpec(traced.outputs[e.name].dtype, found[0], tuple(found[1]))
    out = run_traced(traced, feeds)

    def to_numpy(value: Any, array: Any) -> Any:
        if array is None:
            return None
        if isinstance(array, list):
            return [to_numpy(v, a) for v, a in zip(value.items, array, strict=True)]
        d = value.dtype
        if d in dt.FLOAT8 or d is dt.F4E2M1:
            return np.array(array[1], np.uint8).view(numpy_dtype(d)).reshape(array[0])
        return np.array(array[1], dtype=numpy_dtype(d) if d is not dt.I64 else np.int64).reshape(array[0])

    return [to_numpy(traced.outputs[k], v) for k, v in out.items()]


def _settled(name: str, x: Any, spec: Any, dims: set[Symbol]) -> Any:
    return fix_dims((name,), spec, np.asarray(x).shape, dims) if isinstance(spec, TensorSpec) else spec


def run_traced(traced: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    """Outputs by name as (shape, flat values). traced: from `trace_graph`."""
    flat: dict[Any, Any] = {}
    for name, x in feeds.items():
        for n, item in enumerate(x) if isinstance(x, list) else [(-1, x)]:
            if item is not None:
                flat[(name,) if n < 0 else (name, n)] = (np.asarray(item).shape, storage(np.asarray(item)))
    return interpreter.run(traced, elements, flat)
