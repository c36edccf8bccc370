"""The provider "auto" natively: the trial beside runs on WebAssembly, and the choice that later sessions find."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession, errors
from pyruntime.native.gpu import device
from pyruntime.native.sessions import compiler, program_cache
from pyruntime.runtime import provider_trial

pytest.importorskip("wgpu")

TEXT = """<ir_version: 9, opset_import: ["" : 17]> g (float[N, 256] x) => (float[N, 1] s)
    <float[1] value = {0.004}> { shape = Constant <value_ints = [256, 256]> () w = Expand (value, shape)
    a = MatMul (x, w) b = Tanh (a) c = MatMul (b, w) s = ReduceMax <axes = [1]> (c) }"""
MODEL = onnx.parser.parse_model(TEXT).SerializeToString()
AUTO: list[Any] = [("auto", {"allow_software": True})]
X = np.ones((2048, 256), np.float32)
RIGHT = 0.790007  # 1.024 tanh(1.024)


@pytest.fixture(autouse=True)
def any_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a fast machine, whose runs are too short for a GPU, nor a slow moment, which begins a new trial, decides
    these tests."""
    monkeypatch.setattr(provider_trial, "FLOOR", 0.0)
    monkeypatch.setattr(provider_trial, "LONGER", 1e9)


def run(session: InferenceSession, rows: int = 2048) -> None:
    (s,) = session.run(None, {"x": X[:rows]})
    assert s.shape == (rows, 1)
    np.testing.assert_allclose(s, RIGHT, rtol=1e-4)


def finished(session: InferenceSession) -> dict[str, Any]:
    """The report of the providers, when the trial has ended."""
    for _ in range(200):
        run(session)
        report: dict[str, Any] = session.explain()["providers"]
        if session._native._trial is None or "GPU" in report["why"]:
            return report
        time.sleep(0.1)
    raise AssertionError(report)


@pytest.mark.parametrize(("gain", "used"), [(1e9, ["webgpu", "wasm"]), (0.0, ["wasm"])])
def test_trial(gain: float, used: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The session moves to the GPU only if that wins; results stay right; the next session begins there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(program_cache.OFF_FOR_ALL, raising=False)
    monkeypatch.setattr(provider_trial, "GAIN", gain)
    session = InferenceSession(MODEL, providers=AUTO)
    first = session.explain()["providers"]
    assert first == {"named": ["auto"], "used": ["wasm"], "why": "auto: runs on WebAssembly are timed"}
    found = finished(session)
    trial = session._native._trial
    for _ in range(200):  # until the session has moved
        if trial is None or trial._thread is None:
            break
        time.sleep(0.1)
    for rows in (2048, 3, 700, 2048):
        run(session, rows)
    found = session.explain()["providers"]
    assert found["used"] == used and found["why"].endswith("ms on the GPU")
    later = InferenceSession(MODEL, providers=AUTO)
    run(later)
    assert later.explain()["providers"] == {**found, "why": f"{found['why']}, in an earlier session"}


def test_a_session_that_cannot_move_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU wins, but has no memory for the session. Without fallback, too, later runs are right."""
    monkeypatch.setattr(provider_trial, "GAIN", 1e9)
    opened: list[Any] = []

    def open_once(*args: Any) -> Any:
        if opened:
            raise errors.OutOfMemory("the GPU is full")
        opened.append(device.open_gpu(*args))
        return opened[0]

    monkeypatch.setattr(compiler, "open_gpu", open_once)
    session = InferenceSession(MODEL, providers=AUTO)
    session.disable_fallback()
    found = finished(session)
    assert (found["used"], found["why"]) == (["wasm"], "auto: the GPU failed: the GPU is full")
    trial = session._native._trial
    assert trial is not None
    with pytest.raises(errors.OutOfMemory):
        session._native._move(trial, "the GPU")
    session.explain()  # there is a Program before the next run
    assert opened[0].host.buffers == []
    run(session)


def test_software_adapters_have_no_trial() -> None:
    session = InferenceSession(MODEL, providers=["auto"])
    run(session)
    if session._native._trial is None:
        report = session.explain()["providers"]
        assert report["used"] == ["wasm"] and "computes on the CPU" in report["why"]
    session.set_providers(["wasm"])
    assert session.explain()["providers"] == {"named": ["wasm"], "used": ["wasm"], "why": ""}


def test_a_gpu_without_kernels_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = f"{TEXT[: TEXT.index('<float')]} {{ a = Tanh (x) b = Erf (a) s = ReduceMax <axes = [1]> (b) }}"
    session = InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=AUTO)
    for _ in range(100):
        session.run(None, {"x": X})
        report = session.explain()["providers"]
        if "worth" in report["why"]:
            break
        time.sleep(0.1)
    assert report == {"named": ["auto"], "used": ["wasm"], "why": "auto: no kernel is worth the way to the GPU"}
