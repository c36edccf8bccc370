"""A session's memory spread over several buffers, as if it were larger than the adapter's binding limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from kit import zoo
from kit.models import MODELS
from pyruntime import InferenceSession, OutOfMemory

pytest.importorskip("wgpu")

from pyruntime.providers.webgpu.wgpu_host import GpuHost


@pytest.fixture
def binds(monkeypatch: pytest.MonkeyPatch) -> Any:
    own = GpuHost().own
    return lambda size: monkeypatch.setattr(own, "adapter", replace(own.adapter, binding_bytes=size))


def buffers(session: InferenceSession) -> list[int]:
    return [b.size for b in session._native.latest().gpu.host.buffers]


@pytest.mark.parametrize("name,size", [("mobilenet_v2", 5 << 20), ("llama_mini", 4 << 20), ("digits", 1 << 20)])
def test_models(name: str, size: int, binds: Any) -> None:
    model = MODELS[name]
    binds(size)
    session = InferenceSession(str(model.path()), providers=["webgpu"])
    for _ in range(2):
        model.check(session.run(None, model.feeds()))
    assert not any(n["why"] for n in session.explain()["nodes"]), "all is on the GPU"
    assert len(buffers(session)) > 1 and max(buffers(session)) <= size


def model() -> bytes:
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[N, 64] x) => (float[N, 64] y)
        { h = MatMul (x, w)  r = Relu (h)  y = Add (r, x) }"""
    made = onnx.parser.parse_model(text)
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return bytes(made.SerializeToString())


def test_growing(binds: Any) -> None:
    """Buffers are replaced and added between runs; the weights stay. A tensor over a buffer is refused."""
    size = 1 << 16
    binds(size)
    session = InferenceSession(model(), providers=["webgpu"])
    counts = []
    for n in (1, 2, 100, 7, 255, 256, 1):
        x = np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)
        (want,) = zoo.oracle(model(), {"x": x})
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-5, atol=1e-5)
        counts.append(len(buffers(session)))
    assert counts == sorted(counts) and counts[0] == 1 and counts[-1] >= 3 and max(buffers(session)) <= size
    with pytest.raises(
        OutOfMemory, match=f"a tensor needs {size + 256} bytes, the largest buffer of the GPU has {size}"
    ):
        session.run(None, {"x": np.zeros((257, 64), np.float32)})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-5, atol=1e-5)
