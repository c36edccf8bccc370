"""GPU tensors: kept on the GPU by one run, used by another without a readback, freed, rejected with reasons."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from kit import zoo
from kit.gpu import GPU
from pyruntime import GpuTensor, InferenceSession, InvalidInput, OrtValue, SessionOptions
from pyruntime.errors import DeviceLost, ExecutionError

pytest.importorskip("wgpu")

TEXT = """<ir_version: 9, opset_import: ["" : 17]> g (float[N, 3] a, float[N, 3] b) => (float[N, 3] c, float[N, 3] d)
    { c = Add (a, b)  d = Mul (c, b) }"""
ADD = onnx.parser.parse_model(TEXT).SerializeToString()
A = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
B = np.array([[7, 8, 9], [10, 11, 12]], np.float32)
STAY = "gpu-buffer"


def opened(model: bytes = ADD, location: str | Mapping[str, str] | None = STAY, providers: Any = None) -> Any:
    options = SessionOptions(preferred_output_location=location)
    return InferenceSession(model, options, providers=providers or ["webgpu"])


def device(session: InferenceSession) -> Any:
    return session._native.latest().gpu.host.own


def test_outputs_stay_and_come_back_as_feeds() -> None:
    session = opened()
    read = device(session).bytes_read
    c, d = session.run(None, {"a": A, "b": B})
    assert (c.dtype, c.dims, c.location) == ("float32", (2, 3), STAY)
    e, f = session.run(None, {"a": c, "b": d})
    assert device(session).bytes_read == read, "nothing came home"
    want = zoo.oracle(ADD, {"a": A + B, "b": (A + B) * B})
    np.testing.assert_array_equal(c.get_data(), A + B)
    for tensor, expected in zip((e, f), want, strict=True):
        np.testing.assert_array_equal(tensor.get_data(), expected)
    assert device(session).bytes_read == read + 3 * A.nbytes


@pytest.mark.parametrize("location,stays", [
    ({"c": STAY}, [True, False]), ({"c": STAY, "d": "cpu"}, [True, False]), (STAY, [True, True]),
    ("cpu", [False, False]), (None, [False, False]),
])  # fmt: skip
def test_location_by_session_or_run(location: Any, stays: list[bool]) -> None:
    asked = opened(location=location).run(None, {"a": A, "b": B})
    session = opened(location=None)
    read = device(session).bytes_read
    for outputs in (asked, session.run(None, {"a": A, "b": B}, preferred_output_location=location)):
        assert [isinstance(x, GpuTensor) for x in outputs] == stays
        for x, want in zip(outputs, (A + B, (A + B) * B), strict=True):
            np.testing.assert_array_equal(x.get_data() if isinstance(x, GpuTensor) else x, want)
    assert device(session).bytes_read - read == 2 * A.nbytes + sum(stays) * A.nbytes  # two of get_data or of run


def test_a_run_overrides_the_session() -> None:
    assert isinstance(opened().run(["c"], {"a": A, "b": B}, preferred_output_location="cpu")[0], np.ndarray)


CACHE = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
    g (float[1, 2, P, 3] past, float[1, 2, N, 3] new, int64[K] order)
        => (float[1, 2, T, 3] present, float[1, 2, K, 3] picked, float[1, 2, T, 3] also)
    { present = Concat <axis = 2> (past, new)  picked = Gather <axis = 2> (present, order)  also = Identity (present) }
""").SerializeToString()


def test_caches_that_stay_by_io_binding() -> None:
    """What was made stays as it is."""
    session = InferenceSession(CACHE, providers=["webgpu"])
    read = device(session).bytes_read
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((1, 2, 1, 3)).astype(np.float32)
    values, history = OrtValue.ortvalue_from_numpy(rows), []
    for step in range(12):
        new, order = rng.standard_normal((1, 2, 1 + step % 2, 3)).astype(np.float32), np.array([step, 0])
        binding = session.io_binding()
        binding.bind_ortvalue_input("past", values)
        binding.bind_cpu_input("new", new)
        binding.bind_cpu_input("order", order)
        binding.bind_output("present", "webgpu")
        binding.bind_output("picked")
        session.run_with_iobinding(binding)
        values, picked = binding.get_outputs()
        rows = np.concatenate([rows, new], axis=2)
        history.append((values, rows))
        np.testing.assert_array_equal(picked.numpy(), rows[:, :, order])
    both = picked.numpy().nbytes + 16  # and the record of faults
    assert device(session).bytes_read == read + 12 * both, "no cache came home"
    for held, want in history:
        np.testing.assert_array_equal(held.numpy(), want)


def test_two_continuations_of_one_tensor() -> None:
    session = InferenceSession(CACHE, providers=["webgpu"])
    order = np.array([0])
    names, stay = ["present", "picked"], {"present": STAY}

    def longer(past: Any, value: float) -> Any:
        feeds = {"past": past, "new": np.full((1, 2, 1, 3), value, np.float32), "order": order}
        return session.run(names, feeds, preferred_output_location=stay)[0]

    first = longer(np.zeros((1, 2, 1, 3), np.float32), 1)
    one, other = longer(first, 2), longer(first, 3)
    found = [x.get_data()[0, 0, :, 0].tolist() for x in (first, one, other)]
    assert found == [[0, 1], [0, 1, 2], [0, 1, 3]]


def test_one_tensor_under_two_names_and_at_home() -> None:
    session = InferenceSession(CACHE, providers=["webgpu"])
    past, new = np.ones((1, 2, 2, 3), np.float32), np.zeros((1, 2, 1, 3), np.float32)
    feeds, want = {"past": past, "new": new, "order": np.array([2])}, np.concatenate([past, new], axis=2)
    for stay in ({"present": STAY, "also": STAY}, {"present": STAY}, {"also": STAY}):
        present, picked, also = session.run(None, feeds, preferred_output_location=stay)
        for name, x in (("present", present), ("also", also)):
            assert isinstance(x, GpuTensor) == (name in stay)
            np.testing.assert_array_equal(x.get_data() if name in stay else x, want)
        np.testing.assert_array_equal(picked, want[:, :, [2]])


def test_only_what_is_asked_for_comes_home() -> None:
    session = opened(location=None)
    read = device(session).bytes_read
    session.run(["d"], {"a": A, "b": B})
    assert device(session).bytes_read - read == A.nbytes


def test_one_tensor_for_two_inputs_and_other_sessions() -> None:
    (c, _) = opened().run(None, {"a": A, "b": B})
    gc.collect()  # the session that made it is gone
    for providers in (["webgpu"], ["wasm"], [GPU, "wasm"]):
        found = opened(location="cpu", providers=providers).run(None, {"a": c, "b": c})
        np.testing.assert_array_equal(found[0], 2 * (A + B))
    np.testing.assert_array_equal(c.get_data(), A + B)


def test_shapes_change() -> None:
    session = opened()
    for n in (1, 3, 0, 1, 7):
        a = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        c, d = session.run(None, {"a": a, "b": a})
        (e, _) = session.run(None, {"a": c, "b": a})
        assert e.dims == (n, 3)
        np.testing.assert_array_equal(e.get_data(), 3 * a)
        np.testing.assert_array_equal(d.get_data(), 2 * a * a)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.int32, np.uint8, np.int8, np.bool_], ids=str)
def test_types(dtype: Any) -> None:
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = onnx.helper.make_node("Transpose", ["x"], ["y"])
    info = [onnx.helper.make_tensor_value_info(n, kind, s) for n, s in (("x", [3, 5]), ("y", [5, 3]))]
    graph = onnx.helper.make_graph([node], "g", info[:1], info[1:])
    model = onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 17)])
    x = np.random.default_rng(0).integers(0, 2, (3, 5)).astype(dtype)
    session = opened(model.SerializeToString())
    (y,) = session.run(None, {"x": x})
    found = y.get_data()
    assert found.dtype == x.dtype and y.dtype == x.dtype.name
    np.testing.assert_array_equal(found, x.T)


def test_what_the_gpu_cannot_hold_comes_home() -> None:
    text = TEXT.replace("float[", "double[")
    a, b = A.astype(np.float64), B.astype(np.float64)
    c, _ = opened(onnx.parser.parse_model(text).SerializeToString()).run(None, {"a": a, "b": b})
    np.testing.assert_array_equal(c, a + b)


def test_made_at_home() -> None:
    """Small work stays on the CPU, yet its outputs go where they are wanted; integers over 32 bits cannot."""
    session = opened(providers=[GPU, "wasm"])
    c, _ = session.run(None, {"a": A, "b": B})
    assert {s["op"] for s in session._native.latest().header["blocks"][1]["steps"]} == {"wasm"}
    np.testing.assert_array_equal(c.get_data(), A + B)
    session = opened(
        onnx.parser.parse_model(TEXT.replace("float[", "int64[")).SerializeToString(), providers=[GPU, "wasm"]
    )
    wide = A.astype(np.int64) << 40
    with pytest.raises(ExecutionError, match="32-bit"):
        session.run(None, {"a": wide, "b": wide})
    assert (
        session.run(["c"], {"a": wide, "b": wide}, preferred_output_location="cpu")[0].tolist() == (2 * wide).tolist()
    )


def test_an_input_that_is_an_output() -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[N] x) => (float[N] x, float[N] y) { y = Exp (x) }"""
    session = opened(onnx.parser.parse_model(text).SerializeToString())
    x, y = session.run(None, {"x": A[0]})
    again, _ = session.run(None, {"x": x})
    np.testing.assert_array_equal(again.get_data(), A[0])
    np.testing.assert_allclose(y.get_data(), np.exp(A[0]), rtol=1e-6)


def test_memory_is_freed() -> None:
    session = opened()
    before = session.memory().tensors
    c, d = session.run(None, {"a": A, "b": B})
    assert session.memory().tensors == before + 2 * A.nbytes
    c.dispose()
    c.dispose()
    assert session.memory().tensors == before + A.nbytes
    del d
    gc.collect()
    assert session.memory().tensors == before


def test_memory_is_freed_when_a_run_fails() -> None:
    """`c` is there already when `d`, made at home, turns out not to fit."""
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[N, 3] a, int64[N] b) => (float[N, 3] c, int64[N] d)
        { c = Exp (a)  d = Neg (b) }"""
    session = opened(onnx.parser.parse_model(text).SerializeToString(), providers=[GPU, "wasm"])
    before = session.memory().tensors
    with pytest.raises(ExecutionError, match="32-bit"):
        session.run(None, {"a": A, "b": np.array([1, 1 << 40])})
    gc.collect()
    assert session.memory().tensors == before


def test_refused() -> None:
    session = opened()
    c, _ = session.run(None, {"a": A, "b": B})
    with pytest.raises(InvalidInput, match="output location"):
        session.run(None, {"a": A, "b": B}, preferred_output_location="moon")
    with pytest.raises(InvalidInput, match="does not exist"):
        opened(location={"z": STAY})
    with pytest.raises(InvalidInput, match="element type"):
        opened(onnx.parser.parse_model(TEXT.replace("float[", "int32[")).SerializeToString()).run(
            None, {"a": c, "b": c}
        )
    with pytest.raises(InvalidInput, match="axis 1"):
        session.run(None, {"a": c, "b": np.ones((2, 4), np.float32)})
    c.dispose()
    for use in (c.get_data, lambda: session.run(None, {"a": c, "b": B})):
        with pytest.raises(InvalidInput, match="disposed"):
            use()
    np.testing.assert_array_equal(session.run(["c"], {"a": A, "b": B})[0].get_data(), A + B)


def test_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyruntime.providers.webgpu import wgpu_device as host_device

    (c, _) = opened().run(None, {"a": A, "b": B})
    monkeypatch.setattr(host_device, "_devices", {})
    other = opened()
    with pytest.raises(InvalidInput, match="another device"):
        other.run(None, {"a": c, "b": B})
    np.testing.assert_array_equal(c.get_data(), A + B)


def test_lost_device() -> None:
    """Its tensors are gone, sessions are not."""
    session = opened()
    c, _ = session.run(None, {"a": A, "b": B})
    device(session).wgpu.destroy()
    for use in (lambda: session.run(None, {"a": c, "b": B}), c.get_data):
        with pytest.raises(DeviceLost, match="gone with its device"):
            use()
    assert session.get_providers() == ["WebGpuExecutionProvider", "CPUExecutionProvider"]
    np.testing.assert_array_equal(session.run(["c"], {"a": A, "b": B})[0].get_data(), A + B)
    c.dispose()
