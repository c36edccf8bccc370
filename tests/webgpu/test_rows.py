"""Procedures of rows, by one invocation or by a workgroup, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from pyruntime import InferenceSession
from pyruntime.codegen.choices import Choices
from pyruntime.providers.webgpu.adapter import Adapter
from pyruntime.providers.webgpu.code_writer import LONG_ROW, WgslCodeWriter
from pyruntime.providers.webgpu.schedules import workgroup_rows

pytest.importorskip("wgpu")

CASES: dict[str, tuple[str, dict[str, Any], int]] = {  # operator, attributes, scales and shifts
    "softmax": ("Softmax", {}, 0),
    "log of softmax": ("LogSoftmax", {}, 0),
    "layer norm": ("LayerNormalization", {}, 2),
    "rows of two axes": ("LayerNormalization", {"axis": -2}, 2),
    "instance norm": ("InstanceNormalization", {}, 2),
    "lp": ("LpNormalization", {"p": 2}, 0),
}
SHAPES = [(1, 1, 1), (3, 2, 31), (2, 3, 64), (1, 5, 65), (2, 1, 1000)]


def model(case: str, shape: tuple[int, ...]) -> bytes:
    op, attributes, extra = CASES[case]
    width = shape[1:2] if op == "InstanceNormalization" else shape[attributes.get("axis", -1) :]
    made = [np.random.default_rng(n).standard_normal(width, np.float32) for n in range(extra)]
    weights = [onnx.numpy_helper.from_array(w, f"w{n}") for n, w in enumerate(made)]
    node = helper.make_node(op, ["x", *[w.name for w in weights]], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")], weights)
    made_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return made_model.SerializeToString()


def forced(monkeypatch: pytest.MonkeyPatch, together: bool, subgroups: bool) -> list[Any]:
    """Where rows go; the list gets what is printed for workgroups."""
    printed: list[Any] = []
    own: Callable[..., Any] = workgroup_rows.print_rows

    def print_rows(code: Any, adapter: Any) -> Any:
        printed.append(code)
        return own(code, replace(adapter, subgroups=subgroups and adapter.subgroups))

    monkeypatch.setattr(workgroup_rows, "cooperates", lambda *_: together)
    monkeypatch.setattr(workgroup_rows, "print_rows", print_rows)
    return printed


@pytest.mark.parametrize("together,subgroups", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("case", CASES)
def test_rows(monkeypatch: pytest.MonkeyPatch, case: str, together: bool, subgroups: bool) -> None:
    printed = forced(monkeypatch, together, subgroups)
    for shape in SHAPES:
        x = 3 * np.random.default_rng(7).standard_normal(shape, np.float32) + 1
        data = model(case, shape)
        session = InferenceSession(data, providers=["webgpu"])
        (want,) = onnxruntime.InferenceSession(data).run(None, {"x": x})
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=2e-5, atol=2e-5, err_msg=str(shape))
        assert set(session.explain()["placement"]) == {"webgpu"}
    assert bool(printed) == together


@pytest.mark.parametrize("together", [False, True])
def test_nan_and_infinity(monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    """Of a row they stay in that row."""
    forced(monkeypatch, together, True)
    x = np.ones((4, 70), np.float32)
    x[1, 66], x[2, 3], x[3] = np.nan, -np.inf, -np.inf
    data = model("softmax", x.shape)
    (found,) = InferenceSession(data, providers=["webgpu"]).run(None, {"x": x})
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(found, e / e.sum(-1, keepdims=True), rtol=1e-5)


def calls(shape: tuple[int, ...]) -> int:
    return InferenceSession(model("softmax", shape), providers=["webgpu"]).explain()["kernels"]


def test_a_softmax_is_one_dispatch() -> None:
    assert calls((3, 2, 300)) == 1


def test_long_rows_are_done_by_all() -> None:
    """A row by one workgroup would leave the rest of a GPU idle."""
    assert calls((2, LONG_ROW)) == 1
    assert calls((2, LONG_ROW + 1)) > 1


def test_a_procedure_has_no_more_tensors_than_an_adapter_binds() -> None:
    """One is left for the record of faults."""
    assert WgslCodeWriter(Adapter(storage_buffers=8), Choices()).rows.tensors == 7
