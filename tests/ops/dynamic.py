"""A node traced once with named dims, run at several sizes, each compared with a peer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import pyruntime.ops  # noqa: F401
from kit.interpret import numpy_dtype, run_traced
from pyruntime.frontend.trace_graph import TensorSpec, trace_graph
from pyruntime.ir import dtype as dt
from pyruntime.onnx.load import load
from pyruntime.onnx.weight_values import elements
from tests.ops.compare import same

Sizes = Mapping[str, int]
MICROSOFT = {"com.microsoft": 1}


@dataclass(frozen=True)
class Case:
    """inputs: name -> dims such as "B S 8" (float32), or (NumPy type, dims), or (maker(sizes, rng), NumPy type, dims).
    Inputs named in `weights` are initializers (dims must be numbers). An input "" is left out."""

    op: str
    attrs: Mapping[str, Any]
    inputs: Mapping[str, Any]
    sizes: Sequence[Sizes] = ({},)
    weights: frozenset[str] = frozenset()
    outputs: Sequence[str] = ("y",)
    opset: int = 21
    domain: str = "com.microsoft"
    tolerance: float = 1e-5
    name: str = ""
    compared: Sequence[int] | None = None
    refused: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name or f"{self.op} {' '.join(f'{k}={v}' for k, v in self.attrs.items())}"


def _parts(entry: Any) -> tuple[Callable[..., np.ndarray], Any, list[int | str]]:
    if isinstance(entry, str):
        entry = (np.float32, entry)
    if len(entry) == 2:
        kind, dims = entry
        entry = (_maker(kind), kind, dims)
    make, kind, dims = entry
    return make, np.dtype(kind), [int(d) if d.lstrip("-").isdigit() else d for d in dims.split()]


def _maker(kind: Any) -> Callable[..., np.ndarray]:
    def make(shape: tuple[int, ...], sizes: Sizes, rng: np.random.Generator) -> np.ndarray:
        if np.dtype(kind).kind in "iu":
            info = np.iinfo(kind)
            return rng.integers(info.min, info.max, shape, kind, endpoint=True)
        return rng.uniform(-1, 1, shape).astype(kind)

    return make


def arrays(case: Case, sizes: Sizes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    out = {}
    for name, entry in case.inputs.items():
        if not name.startswith("_"):
            make, kind, dims = _parts(entry)
            shape = tuple(sizes[d] if isinstance(d, str) else d for d in dims)
            out[name] = np.asarray(make(shape, sizes, rng), kind).reshape(shape)
    return out


def build(case: Case, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    names = ["" if name.startswith("_") else name for name in case.inputs]
    node = helper.make_node(case.op, names, list(case.outputs), domain=case.domain, **case.attrs)
    inputs = []
    for name, x in values.items():
        if name not in case.weights:
            code = helper.np_dtype_to_tensor_dtype(x.dtype)
            inputs.append(helper.make_tensor_value_info(name, code, _parts(case.inputs[name])[2]))
    weights = [numpy_helper.from_array(values[name], name) for name in case.weights]
    outputs = [onnx.ValueInfoProto(name=n) for n in case.outputs if n]
    for info in outputs:
        if info.name == "qk":  # whose type ONNX Runtime does not infer
            info.CopyFrom(helper.make_tensor_value_info("qk", onnx.TensorProto.FLOAT, None))
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def by_onnxruntime(m: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def by_onnx(m: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(m).run(None, dict(feeds)))


def check(case: Case, peer: Callable[..., list[Any]] | None = by_onnxruntime) -> None:
    """Trace once, run at each of the sizes."""
    first = arrays(case, case.sizes[0])
    m = build(case, first)
    specs = {}
    for name, x in first.items():
        if name not in case.weights:
            code = helper.np_dtype_to_tensor_dtype(x.dtype)
            specs[name] = TensorSpec(dt.BY_CODE[code], tuple(_parts(case.inputs[name])[2]))
    traced = trace_graph(load(m.SerializeToString()), specs, elements, {})
    for sizes in case.sizes:
        values = arrays(case, sizes)
        feeds = {k: v for k, v in values.items() if k not in case.weights}
        found = run_traced(traced, feeds)
        got = []
        for name, array in found.items():
            d = traced.outputs[name].dtype  # type: ignore[union-attr]
            got.append(np.array(array[1], dtype=numpy_dtype(d)).reshape(array[0]))
        want = peer(m, feeds) if peer is not None else got
        chosen = range(len(got)) if case.compared is None else case.compared
        for n in chosen:
            same(got[n], want[n], case.tolerance)


__all__ = ["MICROSOFT", "Case", "by_onnx", "by_onnxruntime", "check"]
