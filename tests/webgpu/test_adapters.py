"""Which of several adapters a session uses, by name or power; and adapters that are lost while other threads submit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

wgpu = pytest.importorskip("wgpu")

from pyruntime import InferenceSession, SessionOptions  # noqa: E402
from pyruntime.errors import InvalidInput  # noqa: E402
from pyruntime.providers.webgpu import wgpu_device  # noqa: E402
from pyruntime.providers.webgpu.adapter import NoAdapter  # noqa: E402

TEXT = """<ir_version: 9, opset_import: ["" : 17]> g (float[N, 3] x) => (float[N, 2] y)
    <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul (x, w) }"""
MODEL = onnx.parser.parse_model(TEXT).SerializeToString()
CARDS = {
    "Granite 770": ("DiscreteGPU", "Vulkan"),
    "Basalt Graphics": ("IntegratedGPU", "Vulkan"),
    "Granite 770 ": ("DiscreteGPU", "Vulkan"),  # a second card of the same name
    "Basalt": ("IntegratedGPU", "OpenGL"),
}


class Card:
    """The host's adapter under another name."""

    def __init__(self, real: Any, name: str) -> None:
        self.real = real
        kind, backend = CARDS[name]
        self.info = {"device": name.strip(), "description": "", "adapter_type": kind, "backend_type": backend}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Let the host have CARDS. Returns the function that wgpu then has for requests."""
    real = wgpu.gpu.request_adapter_sync()
    powers = {"high-performance": "Granite 770", "low-power": "Basalt Graphics"}

    def request(*, power_preference: str) -> Card:
        return Card(real, powers[power_preference])

    monkeypatch.setattr(wgpu.gpu, "request_adapter_sync", request)
    monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", lambda: [Card(real, name) for name in CARDS])
    monkeypatch.setattr(wgpu_device, "_devices", {})
    return request


def opened(preset: str | None = None, name: str = "webgpu", **options: Any) -> InferenceSession:
    session = InferenceSession(MODEL, SessionOptions(preset=preset), providers=[(name, options)])
    assert session.run(None, {"x": np.ones((1, 3), np.float32)})[0].tolist() == [[9, 12]]
    return session


def device(session: InferenceSession) -> Any:
    return session._native.latest().gpu.host.own


def used(session: InferenceSession) -> str:
    found = device(session)
    return f"{found.adapter.name} #{found.key[-1]}"


@pytest.mark.parametrize(("options", "want"), [
    ({}, "Granite 770 #1"), ({"preset": "power"}, "Basalt Graphics #1"),
    ({"power_preference": "low-power"}, "Basalt Graphics #1"),
    ({"preset": "power", "power_preference": "high-performance"}, "Granite 770 #1"),
    ({"adapter": "basalt"}, "Basalt Graphics #1"), ({"adapter": "GRANITE"}, "Granite 770 #1"),
    ({"adapter": "Granite 770 #2"}, "Granite 770 #2"), ({"adapter": "770", "preset": "power"}, "Granite 770 #1"),
])  # fmt: skip
@pytest.mark.usefixtures("cards")
def test_options_choose_the_adapter(options: dict[str, str], want: str) -> None:
    assert used(opened(**options)) == want


@pytest.mark.usefixtures("cards")
def test_sessions_share_the_device_of_an_adapter() -> None:
    first, second = opened(), opened(adapter="basalt")
    assert [used(first), used(second)] == ["Granite 770 #1", "Basalt Graphics #1"]
    assert device(opened(power_preference="high-performance")) is device(opened(adapter="granite")) is device(first)
    assert device(opened(power_preference="low-power")) is device(second)
    assert device(opened("power")) is device(first), "without options any open device will do"
    device(second).destroy()
    x = np.ones((2, 3), np.float32)
    assert second.run(None, {"x": x})[0].tolist() == [[9, 12]] * 2
    assert used(second) == "Basalt Graphics #1", "a lost device is replaced on the same adapter"
    assert device(first).lost is False
    assert first.set_providers([("webgpu", {"adapter": "#2"})]) is None
    assert used(first) == "Granite 770 #2"


@pytest.mark.usefixtures("cards")
def test_a_file_of_code_runs_on_the_adapter() -> None:
    program = opened(adapter="basalt").export(weights=True, providers=["webgpu"])
    session = InferenceSession(program, providers=[("webgpu", {"adapter": "770 #2"})])
    assert session.run(None, {"x": np.ones((1, 3), np.float32)})[0].tolist() == [[9, 12]]
    assert used(session) == "Granite 770 #2"


@pytest.mark.usefixtures("cards")
def test_names_that_no_adapter_has() -> None:
    listed = '"Granite 770" (DiscreteGPU), "Basalt Graphics" (IntegratedGPU), "Granite 770 #2" (DiscreteGPU)'
    for name in ("webgpu", "auto"):
        with pytest.raises(InvalidInput, match='there is no GPU "marble"') as caught:
            opened(name=name, adapter="marble")
        assert listed in caught.value.hint
    with pytest.raises(InvalidInput, match="adapter names a GPU, so power_preference cannot choose one"):
        opened(adapter="granite", power_preference="low-power")
    with pytest.raises(InvalidInput, match="power_preference of \"webgpu\" cannot be 'most'"):
        opened(power_preference="most")


def test_a_named_adapter_that_is_gone(cards: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of an adapter that was unplugged continues without it; a new one is refused, unless there is none."""
    session = opened(adapter="basalt")
    device(session).destroy()
    monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", lambda: [cards(power_preference="high-performance")])
    with pytest.warns(RuntimeWarning, match='there is no GPU "basalt"'):
        session.run(None, {"x": np.ones((1, 3), np.float32)})
    with pytest.raises(InvalidInput, match="no GPU"):
        opened(adapter="basalt")
    monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", list)
    with pytest.raises(NoAdapter, match="no WebGPU adapter on Vulkan, Metal, D3D12"):
        InferenceSession(MODEL, providers=[("webgpu", {"adapter": "basalt"})])


def test_the_adapter_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wgpu_device, "_devices", {})
    first = opened(allow_software=True)
    second = opened(allow_software=True, adapter=device(first).adapter.name)
    assert device(first) is device(second)


LOSSES = """
import random, threading, time
import numpy as np
from pyruntime import InferenceSession
from pyruntime.errors import DeviceLost
from pyruntime.providers.webgpu import wgpu_device

end, counts = time.monotonic() + 60, [0, 0, 0]

def goes_on():
    return counts[2] < 30 and time.monotonic() < end

def runs():
    while goes_on():
        session = InferenceSession(MODEL, providers=["webgpu"])
        for n in range(1, 20):
            try:
                y = session.run(None, {"x": np.ones((n, 3), np.float32)})[0]
                counts[0] += 1
                assert y.tolist() == [[9, 12]] * n
            except DeviceLost:
                counts[1] += 1

def losses():
    while goes_on():
        time.sleep(0.05 * random.random())
        for device in list(wgpu_device._devices.values()):
            device.destroy()
            counts[2] += 1

threads = [threading.Thread(target=work) for work in (runs, runs, losses)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("ended", *counts)
"""


def test_losses_while_other_threads_submit() -> None:
    """wgpu ends the process if a device is lost between the last check of a call and the call."""
    command = [sys.executable, "-W", "ignore", "-c", f"MODEL = {MODEL!r}\n{LOSSES}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    ended, ran, _, lost = done.stdout.split()
    assert ended == "ended" and int(ran) > 10 and int(lost) >= 30
