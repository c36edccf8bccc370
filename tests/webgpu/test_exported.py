"""Exported Programs for the GPU: what is in the file, which Program of it runs, and why."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from kit import zoo
from kit.gpu import GPU
from pyruntime import InferenceSession
from pyruntime.errors import DeviceLost, InvalidInput, InvalidModel
from pyruntime.native.gpu.device import warn_once
from pyruntime.program.format import Program
from pyruntime.runtime.halves import choose_half, missing

wgpu = pytest.importorskip("wgpu")

from pyruntime.providers.webgpu import wgpu_device  # noqa: E402
from pyruntime.providers.webgpu.adapter import Adapter, NoAdapter  # noqa: E402

DIGITS = Path(__file__).parents[2] / "demo" / "digits" / "digits.onnx"
IMAGE = np.random.default_rng(0).standard_normal((2, 1, 28, 28), np.float32)
BOTH = ["webgpu", "wasm"]
HALF = """<ir_version: 9, opset_import: ["" : 17]> g (float16[64, 256] x) => (float16[64, 256] y)
  { h = Softmax (x)  y = MatMul (h, w) }"""


def half_model() -> bytes:
    model = onnx.parser.parse_model(HALF)
    values = np.random.default_rng(1).standard_normal((256, 256)).astype(np.float16)
    model.graph.initializer.append(onnx.numpy_helper.from_array(values, "w"))
    return model.SerializeToString()


def exported(model: Any = DIGITS, providers: Any = BOTH, **how: Any) -> bytes:
    return InferenceSession(model).export(weights=True, providers=providers, **how)


def changed(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    program = Program.from_bytes(data)
    change(program.header)
    return program.to_bytes()


def told(session: InferenceSession) -> tuple[str, str]:
    """The first provider that it uses, and why it is not the GPU."""
    report = session.explain()["providers"]
    return report["used"][0], report["why"]


@pytest.fixture(scope="module")
def both() -> bytes:
    return exported()


@pytest.fixture
def quiet() -> Any:
    warn_once.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
    warn_once.cache_clear()


def no_adapters(**_: Any) -> Any:
    raise RuntimeError("none for this test")


# ── the file ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_weights_are_in_the_file_once(both: bytes) -> None:
    wasm, gpu = exported(providers=["wasm"]), exported(providers=["webgpu"])
    weights = sum(onnx.numpy_helper.to_array(t).nbytes for t in onnx.load(DIGITS).graph.initializer)
    assert len(both) < len(wasm) + len(gpu) - weights and weights > 80_000
    header = Program.from_bytes(both).header
    places = [{tuple(c["blob"]) for c in h["constants"]} for h in (header, header["fallback"])]
    assert sum(size for _, size in places[0] & places[1]) >= weights
    again = InferenceSession(both, providers=["wasm"])
    assert again.export(weights=True) == both


def test_beside_its_model(tmp_path: Path, quiet: None) -> None:
    (tmp_path / "m.onnx").write_bytes(DIGITS.read_bytes())
    session = InferenceSession(tmp_path / "m.onnx")
    (tmp_path / "m.pyrt").write_bytes(session.export(providers=BOTH))
    expected = session.run(None, {"image": IMAGE})[0]
    for providers in ([GPU, "wasm"], ["wasm"]):
        found = InferenceSession(tmp_path / "m.pyrt", providers=providers)
        np.testing.assert_allclose(found.run(None, {"image": IMAGE})[0], expected, atol=1e-5)
    whole = InferenceSession(tmp_path / "m.pyrt", providers=["wasm"]).export(weights=True)
    assert InferenceSession(whole, providers=["webgpu"]).run(None, {"image": IMAGE})[0].shape == expected.shape


@pytest.mark.parametrize(
    ("model", "assume", "needs"),
    [
        (DIGITS, [], {"f16": False, "subgroups": False}),
        (DIGITS, ["f16", "subgroups"], {"f16": False}),
        ("half", [], {"f16": False}),
        ("half", ["f16"], {"f16": True}),
        ("half", ["f16", "subgroups"], {"f16": True, "subgroups": True}),
    ],
)
def test_needs_are_what_the_shaders_use(model: Any, assume: list[str], needs: dict[str, bool]) -> None:
    header = Program.from_bytes(exported(half_model() if model == "half" else model, assume=assume)).header
    assert needs.items() <= header["needs"].items()
    assert header["needs"]["storage_buffers"] <= 8 and header["needs"]["iterations"] > 0


@pytest.mark.parametrize("what", ["f17", "f16=1", "storage_buffers", "storage_buffers=4", "binding_bytes=-1"])
def test_what_cannot_be_assumed(what: str) -> None:
    with pytest.raises(InvalidInput, match="cannot assume"):
        exported(assume=[what])
    with pytest.raises(InvalidInput, match="only a Program for the GPU"):
        exported(providers=["wasm"], assume=["f16"])


def test_no_gpu_is_needed_to_export(both: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wgpu.gpu, "request_adapter_sync", no_adapters)
    monkeypatch.setattr(wgpu_device, "_devices", {})
    assert exported() == both


def test_a_model_that_does_not_pay_on_the_gpu() -> None:
    """It has no shaders, unless only they are wanted."""
    text = '<ir_version: 9, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Relu (x) }'
    model = onnx.parser.parse_model(text).SerializeToString()
    assert "needs" not in Program.from_bytes(exported(model)).header
    assert "needs" in Program.from_bytes(exported(model, ["webgpu"])).header


# ── which Program runs ────────────────────────────────────────────────────────────────────────────────────────────────

CPU = "computes on the CPU"
CASES: list[tuple[Any, str, str]] = [  # providers, the first that is used, why
    (None, "wasm", CPU),
    (["webgpu"], "webgpu", ""),
    ([GPU, "wasm"], "webgpu", ""),
    (["webgpu", "wasm"], "wasm", CPU),
    (["wasm"], "wasm", ""),
    (["cpu", "webgpu"], "wasm", ""),
    (["auto"], "wasm", CPU),
]


@pytest.mark.parametrize(("providers", "used", "why"), CASES)
def test_the_program_that_runs(providers: Any, used: str, why: str, both: bytes, quiet: None) -> None:
    session = InferenceSession(both, providers=providers)
    first, reason = told(session)
    assert first == used and why in reason and bool(why) == bool(reason)
    expected = InferenceSession(DIGITS).run(None, {"image": IMAGE})[0]
    np.testing.assert_allclose(session.run(None, {"image": IMAGE})[0], expected, atol=1e-5)
    assert set(session.explain()["placement"]) == {used}


def test_the_adapter_lacks_something(both: bytes, quiet: None) -> None:
    much = changed(both, lambda header: header["needs"].update(storage_buffers=99))
    session = InferenceSession(much, providers=[GPU, "wasm"])
    first, why = told(session)
    assert first == "wasm" and "lacks 99 storage buffers in one shader (it has" in why
    assert session.run(None, {"image": IMAGE})[0].shape == (2, 10)
    for providers in (["webgpu"], [GPU, "wasm"]):
        with pytest.raises(NoAdapter, match="lacks 99 storage buffers"):
            InferenceSession(much, providers=providers, enable_fallback=False)
    alone = changed(
        exported(providers=["webgpu"]), lambda header: header["needs"].update(subgroups=True, shared_bytes=1 << 30)
    )
    with pytest.raises(NoAdapter, match="bytes of workgroup memory"):
        InferenceSession(alone)
    with pytest.raises(InvalidInput, match="which the session does not name"):
        InferenceSession(alone, providers=["wasm"])


@pytest.mark.parametrize("f16", [False, True])
def test_half_floats(f16: bool, monkeypatch: pytest.MonkeyPatch, quiet: None) -> None:
    device = wgpu_device.shared_device()
    if f16 and not device.adapter.f16:
        pytest.skip("this adapter has no half floats")
    monkeypatch.setattr(device, "adapter", replace(device.adapter, f16=f16))
    model, x = half_model(), np.random.default_rng(2).standard_normal((64, 256)).astype(np.float16)
    session = InferenceSession(exported(model, assume=["f16"]), providers=[GPU, "wasm"])
    first, why = told(session)
    assert first == ("webgpu" if f16 else "wasm") and ("half floats (shader-f16)" in why) != f16
    expected = InferenceSession(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=0, atol=2e-3)


def test_no_adapter(both: bytes, monkeypatch: pytest.MonkeyPatch, quiet: None) -> None:
    alone = exported(providers=["webgpu"])
    monkeypatch.setattr(wgpu.gpu, "request_adapter_sync", no_adapters)
    monkeypatch.setattr(wgpu_device, "_devices", {})
    for providers in (None, [GPU, "wasm"]):
        first, why = told(session := InferenceSession(both, providers=providers))
        assert first == "wasm" and "no WebGPU adapter" in why
        assert session.run(None, {"image": IMAGE})[0].shape == (2, 10)
    for data, providers in [(both, ["webgpu"]), (alone, None), (alone, [GPU, "wasm"])]:
        with pytest.raises(NoAdapter, match="no WebGPU adapter"):
            InferenceSession(data, providers=providers)


def test_device_lost(both: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new device runs the same Program; without one, the other Program runs."""
    feeds = {"image": IMAGE}
    session, alone = InferenceSession(both, providers=[GPU, "wasm"]), InferenceSession(both, providers=["webgpu"])
    only = InferenceSession(exported(providers=["webgpu"]))
    expected = session.run(None, feeds)[0]
    wgpu_device.shared_device().wgpu.destroy()
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
    assert told(session) == ("webgpu", "")
    wgpu_device.shared_device().wgpu.destroy()
    with monkeypatch.context() as m:
        m.setattr(wgpu.gpu, "request_adapter_sync", no_adapters)
        for one in (session, alone):
            with pytest.warns(RuntimeWarning, match="continues on WebAssembly"):
                np.testing.assert_allclose(one.run(None, feeds)[0], expected, atol=1e-5)
            assert told(one)[0] == "wasm" and "none for this test" in told(one)[1]
        with pytest.raises(DeviceLost):
            only.run(None, feeds)
    assert only.run(None, feeds)[0].shape == (2, 10), "there is a device again"


@pytest.mark.parametrize("name", ["mobilenet_v2.qdq"])
def test_networks(name: str) -> None:
    """Their exported shaders give what a session on the GPU gives."""
    path, feeds = zoo.materialize(name), zoo.inputs(name)
    expected = InferenceSession(path).run(None, feeds)
    found = InferenceSession(exported(path), providers=[GPU, "wasm"])
    for a, b in zip(found.run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-3 * max(np.abs(b).max(), 1))


# ── rules that Python and JavaScript share ────────────────────────────────────────────────────────────────────────────

NEEDS: Any = {
    "f16": True, "subgroups": True, "dot4": True, "storage_buffers": 10, "binding_bytes": 1 << 28,
    "shared_bytes": 32768, "iterations": 1000,
}  # fmt: skip
FULL = Adapter(
    "a", f16=True, subgroups=True, dot4=True, storage_buffers=10, binding_bytes=1 << 28, buffer_bytes=1 << 28,
    shared_bytes=32768,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, ""),
        ({"f16": False}, "half floats (shader-f16)"),
        ({"subgroups": False}, "subgroups"),
        ({"dot4": False}, "integer dot products (packed_4x8_integer_dot_product)"),
        ({"storage_buffers": 8}, "10 storage buffers in one shader (it has 8)"),
        ({"binding_bytes": 1 << 27}, "buffers of 268435456 bytes (it has 134217728)"),
        ({"buffer_bytes": 1 << 27}, "buffers of 268435456 bytes (it has 134217728)"),
        ({"shared_bytes": 16384}, "32768 bytes of workgroup memory (it has 16384)"),
        ({"iterations": 65535}, ""),
        ({"iterations": 999}, "loops of 1000 iterations (it stops after 999)"),
    ],
)
def test_what_an_adapter_lacks(change: dict[str, Any], text: str) -> None:
    assert missing(NEEDS, asdict(replace(FULL, **change))) == [text] * bool(text)


def test_iterations_that_depend_on_feeds() -> None:
    needs = {name: value for name, value in NEEDS.items() if name != "iterations"}
    assert missing(needs, asdict(FULL)) == []  # type: ignore[arg-type]
    found = missing(needs, asdict(replace(FULL, iterations=65535)))  # type: ignore[arg-type]
    assert found == ["loops of any number of iterations (it stops after 65535)"]


def test_a_chain_of_programs() -> None:
    """The first that the adapter can run: more of the GPU, less of it, none of it."""
    least: Any = {"needs": {**NEEDS, "f16": False}, "fallback": {}}
    first: Any = {"needs": NEEDS, "fallback": least}
    facts = [None, asdict(FULL), asdict(replace(FULL, f16=False)), asdict(replace(FULL, subgroups=False))]
    found = [choose_half(first, adapter, "none", True) for adapter in facts]
    assert [half.header for half in found] == [{}, first, least, {}]
    assert [bool(half.why) for half in found] == [True, False, True, True]
    assert [choose_half(first, adapter, "none", False).header for adapter in facts] == [None, first, least, None]


def damage(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        for key in path[:-1]:
            header = header[key]
        if value is None:
            del header[path[-1]]
        else:
            header[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (damage("needs", "binding_bytes", value=1), "it needs buffers of 1 bytes"),
        (damage("needs", "f16", value=1), "needs.f16"),
        (damage("modules", "webgpu", value=None), "webgpu|needs a GPU"),
        (damage("fallback", "name", value=None), "name"),
        (damage("fallback", "types", value={"inputs": [], "outputs": []}), "describes the model again|not declared"),
        (damage("fallback", "outputs", value=[]), "other outputs"),
        (damage("fallback", "threads", value=2), "another number of threads"),
        (damage("fallback", "modules", "webgpu", value=[0, 2]), "without what this code needs"),
        (damage("fallback", "constants", 0, "buffer", value=9999), "buffer"),
        (damage("needs", value=None), "without what this code needs"),
    ],
)
def test_damaged_files(change: Any, text: str, both: bytes) -> None:
    with pytest.raises(InvalidModel, match=text):
        InferenceSession(changed(both, change))
