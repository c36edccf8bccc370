"""Faults of a GPU: lost, out of memory, missing. Devices are really destroyed, and allocations really fail."""

from __future__ import annotations

import gc
import resource
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from kit.gpu import GPU
from pyruntime import InferenceSession
from pyruntime.errors import DeviceLost, ExecutionError, OutOfMemory
from pyruntime.native.gpu.device import warn_once

wgpu = pytest.importorskip("wgpu")

from pyruntime.providers.webgpu.adapter import NoAdapter  # noqa: E402

TEXT = """<ir_version: 9, opset_import: ["" : 17]> g (float[N, 3] x) => (float[N, 2] y)
    <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { h = MatMul (x, w)  y = Relu (h) }"""
MODEL = onnx.parser.parse_model(TEXT).SerializeToString()
X = np.ones((2, 3), np.float32)
RIGHT = [[9, 12], [9, 12]]
BOTH = [GPU, "wasm"]


def opened(providers: list[Any] | None = None, model: bytes = MODEL) -> InferenceSession:
    return InferenceSession(model, providers=providers or ["webgpu"])


def run(session: InferenceSession) -> Any:
    return session.run(None, {"x": X})[0].tolist()


def host(session: InferenceSession) -> Any:
    return session._native.latest().gpu.host


@contextmanager
def nothing_more_allocated() -> Iterator[None]:
    """The process gets no more address space: memory of a software GPU is memory of the process."""
    gc.collect()
    with open("/proc/self/statm") as f:
        size = int(f.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + (96 << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def no_adapters(**_: Any) -> Any:
    raise RuntimeError("none for this test")


def test_device_lost_between_runs() -> None:
    """Device, pipelines and weights are made again, for each session; no warning."""
    first, second = opened(), opened()
    lost = host(first).device
    assert host(second).device is lost and run(first) == RIGHT
    lost.destroy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(first) == RIGHT and run(second) == RIGHT
    assert first.get_providers() == ["WebGpuExecutionProvider", "CPUExecutionProvider"]
    assert host(first).device is host(second).device is not lost


def test_device_lost_before_a_session_is_made() -> None:
    host(opened()).device.destroy()
    assert run(opened()) == RIGHT


def test_device_lost_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened()
    lost = host(session)

    def encode(dispatches: Any) -> None:
        type(lost).encode(lost, dispatches)
        lost.device.destroy()

    monkeypatch.setattr(lost, "encode", encode)
    assert run(session) == RIGHT
    assert host(session).device is not lost.device and session.get_providers() == [
        "WebGpuExecutionProvider",
        "CPUExecutionProvider",
    ]


def test_device_lost_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other device: the session continues on WebAssembly. A Program compiled for the GPU cannot."""
    session = opened()
    program = opened(model=session.export(weights=True))
    assert run(program) == RIGHT
    host(session).device.destroy()
    with monkeypatch.context() as m:
        m.setattr(wgpu.gpu, "request_adapter_sync", no_adapters)
        with pytest.warns(RuntimeWarning, match="continues on WebAssembly"):
            assert run(session) == RIGHT
        assert session.get_providers() == ["CPUExecutionProvider"]
        with pytest.raises(DeviceLost, match="none for this test"):
            run(program)
        assert (session.state, program.state) == ("ready", "failed")
    assert run(program) == RIGHT, "there is a device again"
    assert program.state == "ready"


def test_no_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning and WebAssembly, or an error if only the GPU was asked for."""
    from pyruntime.providers.webgpu import wgpu_device as module

    monkeypatch.setattr(module, "_devices", {})
    monkeypatch.setattr(wgpu.gpu, "request_adapter_sync", no_adapters)
    warn_once.cache_clear()
    with pytest.warns(RuntimeWarning) as caught:
        sessions = [opened(BOTH) for _ in range(2)]
    assert len([w for w in caught if "no WebGPU adapter" in str(w.message)]) == 1
    assert [run(s) for s in sessions] == [RIGHT] * 2 and sessions[0].get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(NoAdapter, match="wasm"):
        opened()


@pytest.mark.parametrize("is_software", [True, False])
@pytest.mark.parametrize(
    ("providers", "takes_software"),
    [(["webgpu", "wasm"], False), (["webgpu"], True), ([GPU, "wasm"], True), ([("webgpu", {}), "cpu"], False)],
)
def test_software_adapter(
    is_software: bool, providers: list[Any], takes_software: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter that computes on the CPU counts if the session allows it or names no other provider."""
    device = host(opened()).own
    monkeypatch.setattr(device, "adapter", replace(device.adapter, name="soft", software=is_software))
    warn_once.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = opened(providers)
    is_used = takes_software or not is_software
    assert session.get_providers()[0] == ("WebGpuExecutionProvider" if is_used else "CPUExecutionProvider")
    why = "" if is_used else 'the WebGPU adapter "soft" computes on the CPU'
    report = session.explain()["providers"]
    assert (report["why"], report["used"][0]) == (why, "webgpu" if is_used else "wasm")
    assert [str(w.message).partition(";")[0] for w in caught] == [f"pyruntime: {why}"] * (not is_used)
    assert run(session) == RIGHT


@pytest.mark.parametrize("times", [1, 99])
def test_out_of_memory(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another try with everything freed, then a clear error; the session stays usable on the GPU."""
    session = opened()
    assert run(session) == RIGHT
    before = host(session)
    grow, more = type(before).grow, {"x": np.ones((4, 3), np.float32)}  # a new shape, which needs more memory
    tries: list[int] = []

    def full(self: Any, size: int) -> None:
        tries.append(size)
        if len(tries) > times:
            grow(self, size)
        else:
            with nothing_more_allocated():
                grow(self, 1 << 29)

    with monkeypatch.context() as m:
        m.setattr(type(before), "grow", full)
        if times == 1:
            assert session.run(None, more)[0].tolist() == [[9, 12]] * 4
        else:
            with pytest.raises(OutOfMemory, match="GPU has no memory left"):
                session.run(None, more)
    assert len(tries) >= 2 and not before.buffers
    assert run(session) == RIGHT and session.get_providers() == ["WebGpuExecutionProvider", "CPUExecutionProvider"]


@pytest.mark.parametrize("what", ["profile", "verify"])
def test_device_lost_before_a_diagnosis(what: str) -> None:
    session = opened()
    host(session).device.destroy()
    found = getattr(session, what)({"x": X})
    assert found.ok if what == "verify" else sum(t.seconds for t in found) > 0
    assert run(session) == RIGHT and session.get_providers() == ["WebGpuExecutionProvider", "CPUExecutionProvider"]


def broken_source(gpu: Any) -> None:
    gpu.shaders = [replace(s, source=s.source.replace("fn main", "fn main(")) for s in gpu.shaders]


def wide_workgroups(gpu: Any) -> None:
    """The adapter would take everything in one dimension."""
    gpu.host.adapter = replace(gpu.host.adapter, workgroups=1 << 31)


def odd_places(gpu: Any) -> None:
    """What is bound is not aligned."""
    place = gpu.host.place
    gpu.host.place = lambda offset: (place(offset)[0], place(offset)[1] + 4)


def stale_pipelines(gpu: Any) -> None:
    """Pipelines of another layout than the bind groups; not among those that other sessions use."""
    host, made = gpu.host, type(gpu.host)._compile
    host._pipelines = {}
    host._compile = lambda shader, label: made(host, replace(shader, buffers=shader.buffers + 1), label)


def exp_model() -> bytes:
    nodes = [onnx.helper.make_node("Exp", ["x"], ["y"], "first")]
    info = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["N"]) for n in "xy"]
    graph = onnx.helper.make_graph(nodes, "g", info[:1], info[1:])
    opset = onnx.helper.make_opsetid("", 17)
    return onnx.helper.make_model(graph, ir_version=9, opset_imports=[opset]).SerializeToString()


@pytest.mark.parametrize("what", ["run", "profile"])
@pytest.mark.parametrize("fault", [broken_source, wide_workgroups, odd_places, stale_pipelines])
def test_what_the_gpu_refuses_names_node_and_kernel(fault: Any, what: str) -> None:
    session = opened(model=exp_model())
    fault(session._native.latest().gpu)
    with pytest.raises(ExecutionError, match=r"refused kernel \d+") as caught:
        feeds = {"x": np.zeros(65536 * 64 + 1, np.float32)}
        session.run(None, feeds) if what == "run" else session.profile(feeds)
    assert caught.value.node == 'Exp "first" (opset 17)'


def test_a_refused_profile_leaves_nothing_behind() -> None:
    """wgpu ended later passes with the query of the refused one, then freed: the process crashed."""
    for _ in range(6):
        session = opened(model=exp_model())
        wide_workgroups(session._native.latest().gpu)
        with pytest.raises(ExecutionError, match="refused"):
            session.profile({"x": np.zeros(65536 * 64 + 1, np.float32)})
        del session
        gc.collect()
        other = opened(model=exp_model())
        for n in range(1, 30):
            assert other.run(None, {"x": np.zeros(n, np.float32)})[0].tolist() == [1] * n


def test_what_does_not_fit_names_the_node() -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]> g (int64[2, 3] x) => (int64[3, 2] y) { y = Transpose (x) }"""
    session = opened(model=onnx.parser.parse_model(text).SerializeToString())
    with pytest.raises(ExecutionError, match="32-bit") as caught:
        session.run(None, {"x": np.full((2, 3), 1 << 40)})
    assert caught.value.node.startswith("Transpose")
