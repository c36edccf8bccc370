"""Providers with a memory of their own, from a package outside the engine: what is copied, kept and freed."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime import ArrayProvider, InferenceSession, InvalidInput, SessionOptions, register_provider
from pyruntime.placement import provider_list

HEAD = '<ir_version: 10, opset_import: ["" : 20]> g '
WEIGHT = ", ".join(f"{x:.3f}" for x in np.random.default_rng(0).standard_normal(64) / 4)
# a and b stay on the device; c is read there, by CumSum and as an output; x is read by two parts
TEXT = f"""(float[N,8] x) => (float[N,8] y, float[N,8] z, float[N,8] c) <float[8,8] w = {{{WEIGHT}}}, int64 one = {{1}}>
    {{ a = MatMul (x, w) b = Tanh (a) c = MatMul (b, w) d = CumSum (c, one) e = Add (d, x) f = MatMul (e, w) y = Exp (f)
      z = Neg (c) }}"""


def model(text: str) -> bytes:
    return onnx.parser.parse_model(HEAD + text).SerializeToString()


MODEL = model(TEXT)


@pytest.fixture(autouse=True)
def visitor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package of providers is installed while a test runs."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "outside"))
    invalidate_caches()
    monkeypatch.setattr(provider_list, "_registered", {})
    yield
    for name in [n for n in sys.modules if n.split(".")[0] == "visitor"]:
        del sys.modules[name]


def session(data: bytes = MODEL, **options: Any) -> InferenceSession:
    """Without the fusion that would make one kernel of several nodes, or of the steps of a loop."""
    whole = SessionOptions(disabled_passes=["map_fusion", "epilogues", "init_fusion", "whole_loops"])
    return InferenceSession(data, whole, providers=[("device", options), "wasm"])


def device_of(s: InferenceSession) -> Any:
    return s._native.compiler.added["device"]._inner


def feeds(n: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)}


def check(s: InferenceSession, given: dict[str, Any], data: bytes = MODEL) -> None:
    for found, expected in zip(s.run(None, given), InferenceSession(data).run(None, given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_what_is_copied_kept_and_freed() -> None:
    s = session()
    device = device_of(s)
    for n, weights in ((3, 1), (5, 0), (3, 0), (0, 0), (200, 0), (7, 0)):
        device.log.clear()
        check(s, feeds(n))
        copies = {("upload", 32 * n): 2, ("download", 32 * n): 3} if n else {}  # of x, d and c, y, z
        assert Counter(device.log) == Counter(copies) + Counter({("upload", 256): weights})
        assert len(device.buffers) == 10
    report = s.explain()
    assert report["memories"]["device"] | {"bytes": 0} == {
        "uploaded": 2, "downloaded": 3, "weights": 1, "kept": 4, "bytes": 0,
    }  # fmt: skip
    assert report["memories"]["device"]["bytes"] == sum(map(len, device.buffers.values()))
    assert s.verify(feeds(4)).ok
    assert {t.kernel for t in s.profile(feeds(4))} >= {"device"}
    s.release()
    assert not device.buffers
    s = session()
    check(s, feeds(2))
    device = device_of(s)
    del s
    gc.collect()
    assert not device.buffers


def test_some_outputs_alone() -> None:
    """Parts that other outputs need do not run, so later ones upload what those would have uploaded."""
    s = session()
    check(s, feeds(6))
    expected = InferenceSession(MODEL).run(None, feeds(4))
    for n, name in enumerate("yzc"):
        np.testing.assert_allclose(s.run([name], feeds(4))[0], expected[n], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (
            """(bool c, float[N] x) => (float[N] y) { a = Tanh (x) b = If (c) <
            then_branch = t () => (float[N] p) { e = Exp (a) f = Neg (e) p = Abs (f) },
            else_branch = f () => (float[N] q) { r = Abs (a) q = Neg (r) }> y = Neg (b) }""",
            [5, 5, 0, 9],
        ),
        (
            """(int64 n, float[N] x) => (float[N] y, float[T,N] s) <bool yes = {1}> { y, s = Loop (n, yes, x) <
            body = b (int64 i, bool go, float[N] v) => (bool more, float[N] w, float[N] o)
            { more = Identity (go) h = Tanh (v) k = Neg (h) w = Add (k, x) o = Neg (w) }> }""",
            [5, 1, 7],
        ),
        (
            """(float[N] x) => (float[M] y, float[N] z) <int64[2] to = {2, -1}, int64[1] flat = {-1}>
            { a = Tanh (x) r = Reshape (a, to) b = Neg (r) y = Reshape (b, flat) z = Abs (a) }""",
            [4, 6, 2],
        ),
    ],
    ids=["branch", "loop", "reshapes"],
)  # fmt: skip
def test_inner_blocks_and_reshapes(text: str, sizes: list[int]) -> None:
    data = model(text)
    s = session(data)
    for n, size in enumerate(sizes):
        x = np.linspace(-1, 1, size, dtype=np.float32)
        control = {"c": np.array(n % 2 == 0), "n": np.array(n + 2, np.int64)}
        check(s, {"x": x} | {i.name: control[i.name] for i in s.get_inputs() if i.name != "x"}, data)
    assert s.explain()["memories"]["device"]["kept"] >= 1
    device = device_of(s)
    s.release()
    assert not device.buffers


@pytest.mark.parametrize("after", [0, 4])
@pytest.mark.parametrize("where", ["allocate", "upload", "download"])
def test_faults(where: str, after: int) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        s = session(where=where, after=after)
        device = device_of(s)
        for n in (3, 40, 3, 200):
            check(s, feeds(n))
    texts = [str(w.message) for w in told]
    assert texts and all(f'provider "device" failed: MemoryError: the device cannot {where}' in t for t in texts)
    assert s.explain()["memories"] == {} and s.explain()["moved"]
    s.release()
    assert not device.buffers


def test_memory_that_cannot_be_freed() -> None:
    s = session(where="free")
    check(s, feeds(3))
    with pytest.warns(RuntimeWarning, match='provider "device" failed: MemoryError: the device cannot free'):
        s.release()


def test_concurrent_runs() -> None:
    """Each executor has buffers of its own; weights are shared."""
    s = session()
    threads = [threading.Thread(target=lambda n=n: [check(s, feeds(n)) for _ in range(4)]) for n in (3, 3, 9, 30)]
    failed: list[Any] = []
    threading.excepthook, before = failed.append, threading.excepthook
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    threading.excepthook = before
    device = device_of(s)
    assert not failed and device.log.count(("upload", 256)) == 1
    s.release()
    assert not device.buffers


def test_some_methods_alone_are_refused() -> None:
    class Half(ArrayProvider):
        name = "half"

        def supports(self, kernel: Any) -> str:
            return ""

        def compile(self, part: Any) -> Any:
            return None

        def allocate(self, size: int) -> Any:
            return None

    with pytest.raises(InvalidInput, match=r'provider "half" lacks upload, download, free \(a memory of its own needs'):
        register_provider(Half())
