"""Compares one node (or a small graph) on the reference evaluator and on a peer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import helper

from kit.interpret import run
from kit.machine_code import machine_code_calls, usable


def value_info(name: str, x: Any, symbolic: bool = False) -> onnx.ValueInfoProto:
    x = np.asarray(x)
    code = onnx.TensorProto.STRING if x.dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(x.dtype)
    return helper.make_tensor_value_info(name, code, [f"{name}_{n}" if symbolic else d for n, d in enumerate(x.shape)])


def model(
    nodes: list[onnx.NodeProto], feeds: dict[str, Any], outputs: list[str], opset: int = 21, **extra: Any
) -> onnx.ModelProto:
    """A model of these nodes; `extra` may give `initializer`, and `domains` {name: version}."""
    domains = extra.pop("domains", {})
    inputs = [value_info(k, v) for k, v in feeds.items()]
    empty = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "g", inputs, empty, **extra)
    opsets = [helper.make_opsetid("", opset), *[helper.make_opsetid(d, v) for d, v in domains.items()]]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def by_onnxruntime(m: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def by_onnx(m: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(m).run(None, feeds))


def check(
    m: onnx.ModelProto, feeds: dict[str, Any], peer: Any = by_onnxruntime, tolerance: float = 1e-5,
    symbolic: tuple[bool, ...] = (False, True),
) -> None:  # fmt: skip
    """Equal shapes, types and values; sequences item by item. Traced for the feeds' shapes and for symbolic ones."""
    want = peer(m, feeds)
    for free in symbolic:
        same(run(m.SerializeToString(), feeds, free), want, tolerance)
    for found in by_all_codes(m, feeds):
        same(found, want, max(tolerance, 1e-4))


def by_session(m: onnx.ModelProto, feeds: dict[str, Any], native_code: bool | str = True) -> list[Any]:
    from pyruntime import InferenceSession, SessionOptions

    options = SessionOptions(native_code=native_code)
    return InferenceSession(m.SerializeToString(), options, providers=["wasm"]).run(None, feeds)


def by_all_codes(m: onnx.ModelProto, feeds: dict[str, Any]) -> Iterator[list[Any]]:
    """The outputs of a session; if its kernels call machine code, also those of the processor's other instruction sets
    and those without machine code."""
    with machine_code_calls() as calls:
        yield by_session(m, feeds)
    for kind in [*usable()[1:], False] if calls else []:
        yield by_session(m, feeds, kind)


def parsed(text: str, opset: int = 21, **domains: int) -> onnx.ModelProto:
    """A model from the body of a graph in ONNX's text syntax."""
    imports = ", ".join(f'"{k}": {v}' for k, v in {"": opset, **domains}.items())
    return onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]>\n{text}")


def same(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    if isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w, tolerance)
        return
    if want is None or got is None:
        assert got is None and want is None
        return
    want = np.asarray(want)
    if want.dtype.kind in "OU":
        assert got.shape == want.shape and [str(v) for v in got.ravel()] == [str(v) for v in want.ravel()]
        return
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, want.shape, got.dtype, want.dtype)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
