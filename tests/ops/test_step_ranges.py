"""Whole loops in ranges of steps, against the same loops in one range."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.loop_models import build
from kit.gpu import GPU
from pyruntime import InferenceSession, SessionOptions
from pyruntime.codegen.operations import statements
from pyruntime.codegen.step_ranges import as_dispatches, as_work_units, steps_of
from pyruntime.ir import shape as sh
from pyruntime.providers.wasm.threads import cost
from pyruntime.providers.webgpu.limits import iterations
from pyruntime.providers.webgpu.wgpu_device import shared_device
from tests.ops.compare import parsed
from tests.ops.test_whole_loops import BODIES, feeds_of, model, opened

STEPS = 3  # of a range
EDGES = [0, 1, 2, 3, 4, 8, 9, 10]
NAMES = ["columns", "two products", "states change places and values", "a delta rule", "the place of the largest"]
CLOSED = """g (float[T, 2, 130] x, float[2, 130] start) => (float[2, 130] y, float[T, 2, 130] ys) {
    y, ys = Scan <num_scan_inputs = 1, body = b (float[2, 130] h, float[2, 130] u) => (float[2, 130] v, float[2, 130] o)
        { half = Constant <value = float {0.5}> ()  k = Mul (h, half)  v = Add (k, u)  o = Neg (v) }> (start, x)
}"""


def patch(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Ranges of so many steps; threads share calls of little work, too."""
    monkeypatch.setattr(cost, "as_work_units", lambda kernel, _: as_work_units(kernel, steps))
    monkeypatch.setattr(iterations, "as_dispatches", lambda kernel, _: as_dispatches(kernel, steps))
    for limit in ("SPLIT", "WAKE"):
        monkeypatch.setattr(cost, limit, 0)


def check(m: Any, monkeypatch: pytest.MonkeyPatch, rounding: float = 0.0, **how: Any) -> None:
    """The same results as in one range, for numbers of steps around the edges of ranges."""
    patch(monkeypatch, 1000)
    whole = opened(m, **how)
    patch(monkeypatch, STEPS)
    divided = opened(m, **how)
    for count in EDGES:
        feeds = feeds_of(count, 130)
        for a, b in zip(whole.run(None, feeds), divided.run(None, feeds), strict=True):
            np.testing.assert_allclose(a, b, rounding, rounding, err_msg=f"{count} steps")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_edges_of_ranges(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(model(BODIES[name], "loop", width=130), monkeypatch, threads=threads)


@pytest.mark.parametrize("name", [*NAMES[:3], "a cell"])
def test_edges_of_ranges_on_the_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers may contract products and sums of one shader, and not of the other."""
    check(model(BODIES[name], "scan", width=130), monkeypatch, 1e-4, providers=[GPU])


@pytest.mark.parametrize("name", ["mamba_scan", "rwkv_scan", "lstm_scan"])
def test_ranges_on_software_adapters_follow_operations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not iterations, of which one may compute a single sum or many exponentials."""
    device, found = shared_device(), list[float]()

    def divided(kernel: Any, length: Any) -> Any:
        steps = steps_of(kernel)
        assert steps is not None
        work = statements(steps.loop.body) * steps.units.extent.value
        found.append(sh.estimate(work) * sh.estimate(length))
        return as_dispatches(kernel, length)

    monkeypatch.setattr(iterations, "as_dispatches", divided)
    monkeypatch.setattr(device, "adapter", replace(device.adapter, software=True))
    InferenceSession(build(name, 1024)[0].SerializeToString(), providers=[GPU])
    assert found and all(iterations.SOFTWARE_RANGE / 2 < x <= iterations.SOFTWARE_RANGE for x in found)


@pytest.mark.parametrize("providers", [["wasm"], [GPU]])
def test_a_hundred_thousand_steps(providers: list[Any]) -> None:
    """One after the other they would take more iterations than llvmpipe allows in a dispatch."""
    session = InferenceSession(parsed(CLOSED).SerializeToString(), SessionOptions(intra_op_num_threads=2), providers)
    rng = np.random.default_rng(0)
    x = np.zeros((100_000, 2, 130), np.float32)
    x[[0, 1, 50_000, 65_534, 65_535, 65_536, 99_998, 99_999]] = rng.standard_normal((8, 2, 130))
    start = rng.standard_normal((2, 130)).astype(np.float32)
    y, ys = session.run(None, {"x": x, "start": start})
    h = start
    for n, u in enumerate(x):
        h = h * np.float32(0.5) + u
        if n < 30 or n % 9999 == 0 or n > 99_990:
            np.testing.assert_array_equal(ys[n], -h)
    np.testing.assert_array_equal(y, h)
