"""Each fault of kit/faults.py in a native session: the result is right, on the next provider if the GPU cannot give it,
and the session says so once."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from kit.faults import ABSENT, NODES, NOTHING, SESSION, TABLE, WAITING, Fault, feed, model, right
from pyruntime import GpuTensor, InferenceSession, OrtValue, SessionOptions, errors
from pyruntime.native.gpu.device import warn_once
from pyruntime.runtime.recovery import Move, RecoveryPlan, after_gpu, text_of_moves

wgpu = pytest.importorskip("wgpu")

from pyruntime.providers.webgpu import wgpu_device  # noqa: E402
from pyruntime.providers.webgpu.wgpu_host import GpuHost  # noqa: E402

BOTH = ["webgpu", "wasm"]
MODEL = model()


class Injector:
    """Causes one fault."""

    def __init__(self, fault: Fault, patch: pytest.MonkeyPatch) -> None:
        self.fault, self.patch, self.left = fault, patch, fault.times or 1 << 30
        hardware(patch)
        warn_once.cache_clear()

    def start(self) -> None:
        getattr(self, self.fault.kind.replace(" ", "_"))()

    def replace(self, owner: Any, method: str, act: Callable[..., Any]) -> None:
        """Let a method be `act(real, self, …)`."""
        real = getattr(owner, method)
        self.patch.setattr(owner, method, lambda *args, **kwargs: act(real, *args, **kwargs))

    def happens(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def refused_shader(self, node: str = "first") -> None:
        def compile_broken(real: Any, host: Any, shader: Any, label: str) -> Any:
            source = shader.source.replace("fn main", "fn main(") if node in label else shader.source
            return real(host, replace(shader, source=source), label)

        self.replace(GpuHost, "_compile", compile_broken)

    def refused_shaders(self) -> None:
        self.refused_shader("")

    def slow_shader(self) -> None:
        def compile_slowly(real: Any, host: Any, shader: Any, label: str) -> Any:
            return threading.Event().wait(30) if "first" in label else real(host, shader, label)

        self.replace(GpuHost, "_compile", compile_slowly)

    def full(self) -> None:
        self.no_buffers(lambda size: self.happens())

    def taken_memory(self) -> None:
        """The device has room for one session, and another one has taken it."""
        other = InferenceSession(MODEL, providers=["webgpu"])
        other.run(None, {"x": feed(200)})
        taken = sum(buffer.size for buffer in other._native.latest().gpu.host.buffers)
        self.other = other
        self.no_buffers(lambda size: taken + size > taken + (100 << 10))

    def no_buffers(self, is_refused: Callable[[int], bool]) -> None:
        def create_buffer(real: Any, device: Any, **how: Any) -> Any:
            if how.get("label") == "arena" and is_refused(how["size"]):
                raise wgpu.GPUOutOfMemoryError("made by the test")
            return real(device, **how)

        self.replace(type(wgpu_device.shared_device().wgpu), "create_buffer", create_buffer)

    def lost(self) -> None:
        def open_and_lose(real: Any, device: Any, *args: Any) -> None:
            real(device, *args)
            if self.happens():
                device.wgpu.destroy()

        def encode_and_lose(real: Any, host: Any, dispatches: Any) -> None:
            real(host, dispatches)
            if self.happens():
                host.device.destroy()

        if self.fault.when == "between":
            wgpu_device.shared_device().wgpu.destroy()
        elif self.fault.when == "run":
            self.replace(GpuHost, "encode", encode_and_lose)
        else:
            self.patch.setattr(wgpu_device, "_devices", {})
            self.replace(wgpu_device.Device, "__init__", open_and_lose)

    def gone(self) -> None:
        def no_adapter(**_: Any) -> Any:
            raise RuntimeError("the adapter is gone")

        self.lost()
        self.patch.setattr(wgpu.gpu, "request_adapter_sync", no_adapter)

    def silent_adapter(self) -> None:
        self.lost()
        self.patch.setattr(wgpu.gpu, "request_adapter_sync", lambda **_: threading.Event().wait(30))

    def silent_device(self) -> None:
        self.lost()
        adapter = type(wgpu.gpu.request_adapter_sync())
        self.replace(adapter, "request_device_sync", lambda *_, **__: threading.Event().wait(30))

    def hang(self) -> None:
        class Never:
            _thread_event = threading.Event()

        self.replace(type(wgpu_device.shared_device().buffer(4, "")), "map_async", lambda *_: Never())


def hardware(patch: pytest.MonkeyPatch) -> None:
    """Let the adapter seem to be hardware: work may not pay on a software adapter."""
    describe = wgpu_device._describe
    patch.setattr(wgpu_device, "_describe", lambda found: replace(describe(found), software=False))
    patch.setattr(wgpu_device, "_devices", {})


def create(has_fallback: bool = True, gpu_timeout: float = 60.0) -> InferenceSession:
    return InferenceSession(MODEL, SessionOptions(gpu_timeout=gpu_timeout, fallback=has_fallback), providers=BOTH)


def is_right(session: InferenceSession, rows: int) -> bool:
    found = dict(zip(["y", "e"], session.run(None, {"x": feed(rows)}), strict=True))
    return all(np.allclose(found[name], expected, 1e-4) for name, expected in right(rows).items())


@pytest.fixture(params=TABLE, ids=str)
def injector(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Injector:
    return Injector(request.param, monkeypatch)


def opened_with_fault(injector: Injector, has_fallback: bool = True) -> InferenceSession:
    """A session in which the fault happens next, or has happened."""
    timeout = 1.5 if injector.fault.kind in WAITING else 60.0
    if injector.fault.when == "creation":
        injector.start()
        return create(has_fallback, timeout)
    session = create(has_fallback, timeout)
    assert is_right(session, 64) and session.explain()["placement"] == {"webgpu": 2}
    injector.start()
    return session


def test_with_fallback(injector: Injector) -> None:
    fault = injector.fault
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = opened_with_fault(injector)
        assert is_right(session, 96)
        found = session.explain()
        assert is_right(session, 32) and is_right(session, 100) and session.state == "ready"
    texts = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
    assert len(texts) == (fault.moved != NOTHING), texts
    moved, placement = found["moved"], found["placement"]
    assert all(fault.reason in move["reason"] and move["to"] == "wasm" for move in moved), moved
    assert all(fault.reason in text and "WebAssembly" in text for text in texts)
    nodes = ["" if not move["node"] else move["node"].partition('"')[2].partition('"')[0] for move in moved]
    if fault.moved == SESSION:
        assert placement.keys() == {"wasm"} and session.get_providers() == ["CPUExecutionProvider"]
        assert found["providers"]["used"] == ["wasm"] and fault.reason in found["providers"]["why"]
        is_absent = fault.kind in ABSENT and fault.when == "creation"  # the session never was on the GPU
        assert nodes == [""] * (not is_absent)
        assert is_absent or {node["why"] for node in found["nodes"] if node["calls"]} == {moved[0]["reason"]}
    elif fault.moved == NODES:
        assert "first" in nodes and {n for n in nodes if n not in texts[0]} == set()
        why = {node["node"]: node["why"] for node in found["nodes"]}
        assert all(why[move["node"]] == move["reason"] for move in moved)
        assert placement.keys() == ({"wasm"} if fault.kind == "refused shaders" else {"wasm", "webgpu"})
    else:
        assert moved == [] and placement.keys() == {"webgpu"}
    assert (session.metrics()["recovered"] > 0) == (fault.kind not in ABSENT or fault.when != "creation")


def test_without_fallback(injector: Injector) -> None:
    """The typed error; the session is usable once the fault is over."""
    session = None
    with pytest.raises(errors.PyRuntimeError) as caught:
        session = opened_with_fault(injector, has_fallback=False)
        is_right(session, 96)
    assert type(caught.value).__name__ == injector.fault.error and injector.fault.reason in str(caught.value)
    injector.patch.undo()
    hardware(injector.patch)
    session = session or create(has_fallback=False)
    assert is_right(session, 96) and session.metrics()["recovered"] == 0 and session.explain()["moved"] == []


def test_alone_a_session_gets_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was created for the GPU alone; its next run tries the GPU again."""
    for fault in (Fault("full", "run", 2, NOTHING, ""), Fault("refused shader", "run", 0, NOTHING, "")):
        session = InferenceSession(MODEL, providers=["webgpu"])
        with monkeypatch.context() as patch:
            Injector(fault, patch).start()
            session._native.programs.restart()
            with pytest.raises((errors.OutOfMemory, errors.ExecutionError), match=r"no memory left|refused"):
                is_right(session, 80)
        assert is_right(session, 80) and session.explain()["moved"] == []


CACHE = """<ir_version: 9, opset_import: ["" : 17]>
    g (float[T, 128] x, float[P, 128] past) => (float[T, 128] y, float[A, 128] present)
    { k = MatMul (x, w)  present = Concat <axis = 0> (past, k)  [product] a = MatMul (x, v)  y = Tanh (a) }"""


def test_tensors_on_the_gpu_and_caches_outlive_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache on the GPU is fed to the session that has left it; then the cache grows in linear memory."""
    hardware(monkeypatch)
    parsed = onnx.parser.parse_model(CACHE)
    weight = np.eye(128, dtype=np.float32)
    parsed.graph.initializer.extend(onnx.numpy_helper.from_array(weight * n, name) for n, name in ((2, "w"), (1, "v")))
    session = InferenceSession(parsed.SerializeToString(), providers=BOTH)
    rows = [np.full((64, 128), n, np.float32) for n in range(5)]
    past: Any = np.zeros((0, 128), np.float32)
    on_gpu = {"preferred_output_location": {"present": "gpu-buffer"}}
    for n in (0, 1):
        _, past = session.run(None, {"x": rows[n], "past": past}, **on_gpu)
    assert isinstance(past, GpuTensor)
    with monkeypatch.context() as patch, pytest.warns(RuntimeWarning, match="continues on WebAssembly"):
        Injector(Fault("full", "run", 0, SESSION, ""), patch).start()
        session._native.programs.restart()
        _, past = session.run(None, {"x": rows[2], "past": past}, **on_gpu)
    held = OrtValue.ortvalue_from_numpy(past)
    for n in (3, 4):
        feeds = {"x": OrtValue.ortvalue_from_numpy(rows[n]), "past": held}
        _, held = session.run_with_ort_values(None, feeds)
    assert np.array_equal(held.numpy(), 2 * np.concatenate(rows))


PLANS = [  # faults of one work, what follows each; with another provider
    ("full full", "again session"), ("lost lost", "again session"), ("late:a late:b", "nodes session"),
    ("late", "session"), ("refused:a refused:b refused:b", "nodes nodes session"), ("refused:", "session"),
    ("lost full full", "again again session"), ("full refused:a full", "again nodes session"),
]  # fmt: skip
ALONE = [
    ("full full", "again fail"),
    ("lost lost", "again session"),
    ("refused:a", "fail"),
    ("late late", "again session"),
]


@pytest.mark.parametrize("providers", [["webgpu", "wasm"], ["webgpu"]], ids=" ".join)
def test_plans(providers: list[str]) -> None:
    for faults, expected in PLANS if len(providers) > 1 else ALONE:
        plan, found = RecoveryPlan(True, True, providers), list[str]()
        moved: list[Move] = []
        for fault in faults.split():
            kind, has_node, node = fault.partition(":")
            nodes = {node: "why"} if has_node else {}
            found.append(plan.after(kind, nodes, moved))
            moved = plan.leave(nodes, "why", moved) if found[-1] == NODES else moved
        assert " ".join(found) == expected, faults
    assert RecoveryPlan(False, True, providers).after("lost", {}, []) == "fail"
    assert RecoveryPlan(True, True, providers).after("", {}, []) == "fail"
    assert RecoveryPlan(True, False, providers).after("full", {}, []) == "again"
    plan = RecoveryPlan(True, False, providers)
    assert [plan.after("lost", {}, []) for _ in range(2)] == ["again", "fail"]


def test_texts() -> None:
    plan = RecoveryPlan(True, True, ["webgpu", "mine", "wasm"])
    made = [Move(f"Op {n}", "refused", "wasm") for n in range(5)]
    assert text_of_moves(made[:1]) == "Op 0: refused; from now on this node runs on WebAssembly"
    assert text_of_moves(made) == (
        "Op 0: refused; Op 1: refused; Op 2: refused; and 2 more; from now on these nodes run on WebAssembly"
    )
    assert plan.leave({"Op 0": "refused"}, "", made) == [*made, *plan.made] and plan.made[0].to == "mine"
    assert plan.leave({}, "the GPU is full", made) == plan.made
    assert text_of_moves(plan.made) == "the GPU is full; the session continues on mine"


@pytest.mark.parametrize(
    ("providers", "following"),
    [("webgpu wasm", "wasm"), ("auto", "wasm"), ("wasm webgpu mine", ""), ("mine webgpu mine", "mine"), ("wasm", "")],
)
def test_the_provider_after_the_gpu(providers: str, following: str) -> None:
    assert after_gpu(providers.split()) == following
