"""Whatever a caller of the API gives, what comes back is an error of ours that names it."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from pyruntime import InferenceSession, InvalidInput, InvalidModel, PyRuntimeError, SessionOptions
from pyruntime.errors import InternalError, our_fault
from pyruntime.options import PYODIDE, check_options

TEXT = """<ir_version: 10, opset_import: ["" : 20]> g (float[N, 3] x) => (float[N, 3] y) { y = Relu (x) }"""
MODEL = onnx.parser.parse_model(TEXT).SerializeToString()


@pytest.fixture(scope="module")
def session() -> InferenceSession:
    return InferenceSession(MODEL)


@pytest.mark.parametrize(("feeds", "text"), [
    (None, "feeds must be a dict of tensors by name, got NoneType"),
    ([1], "feeds must be a dict"),
    ("x", "feeds must be a dict"),
    ({1: 2}, 'input "1" does not exist'),
    ({}, 'input "x" is missing'),
    ({"x": {}}, 'input "x" must be a tensor, got dict'),
    ({"x": None}, 'input "x" must be a tensor, got NoneType'),
    ({"x": [[1, 2], [3]]}, 'input "x" is not a tensor: .*inhomogeneous'),
    ({"x": [["a", "b", "c"]]}, 'input "x" has element type string, expected float32'),
    ({"x": np.ones((1, 3), complex)}, 'input "x" has element type complex128'),
    ({"x": np.ones((1, 3), "M8[s]")}, r"arrays of datetime64\[s\] are not supported"),
    ({"x": [[1j, 1, 1]]}, "element type complex128"),
])  # fmt: skip
def test_feeds(session: InferenceSession, feeds: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        session.run(None, feeds)
    assert session.run(None, {"x": np.ones((1, 3), np.float32)})[0].shape == (1, 3)


@pytest.mark.parametrize("shape", [(2,), (2, 4, 5), (2, 3, 5, 1)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "f2", "?"])
def test_what_programs_look_for_in_messages_about_feeds(shape: tuple[int, ...], dtype: str) -> None:
    """What was fed and what is expected, in onnxruntime's words."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 3, 4] x) => (float[N, 3, 4] y) { y = Relu (x) }"""
    data, said = onnx.parser.parse_model(text).SerializeToString(), []
    for make in (onnxruntime.InferenceSession, InferenceSession):
        with pytest.raises(Exception) as caught:
            make(data).run(None, {"x": np.ones(shape, dtype)})
        said.append(re.findall(r"Got: \d+ Expected: \d+|Actual: .* expected: \(tensor\(\w+\)\)", str(caught.value)))
    assert said[0] == said[1] != []


@pytest.mark.parametrize(("dtype", "value", "ok"), [
    ("float", [[1, 2, 3]], True), ("float", [[1.5, 2, 3]], True), ("int32", [[1, 2, 3]], True),
    ("uint8", [[1, 2, 255]], True), ("uint8", [[1, 2, 256]], False), ("uint8", [[-1, 2, 3]], False),
    ("int64", [[1.5, 2, 3]], False), ("int8", [[1, 2, 10**30]], False), ("bool", [[True, False, True]], True),
    ("float16", [[1, 2, 3]], True), ("bool", [[1, 2, 0]], False),
])  # fmt: skip
def test_numbers_in_lists_take_the_type_of_the_input(dtype: str, value: Any, ok: bool) -> None:
    graph = f"g ({dtype}[N, 3] x) => ({dtype}[N, 3] y) {{ y = Identity (x) }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {graph}').SerializeToString()
    session = InferenceSession(model)
    if ok:
        y = session.run(None, {"x": value})[0]
        assert y.tolist() == value and y.dtype == np.dtype({"float": "f4"}.get(dtype, dtype))
    else:
        with pytest.raises(InvalidInput, match='input "x"'):
            session.run(None, {"x": value})


def test_strings_as_bytes_are_utf_8() -> None:
    text = '<ir_version: 8, opset_import: ["" : 19]> g (string[N] x) => (string[N] y) { y = Identity (x) }'
    session = InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    assert session.run(None, {"x": np.array(["é".encode()])})[0].tolist() == ["é"]
    with pytest.raises(InvalidInput, match="no UTF-8"):
        session.run(None, {"x": np.array([b"\xff"])})


@pytest.mark.parametrize("names", ["y", 5, ["z"], [1], [None], [["y"]]])
def test_output_names(session: InferenceSession, names: Any) -> None:
    with pytest.raises(InvalidInput, match="output"):
        session.run(names, {"x": np.ones((1, 3), np.float32)})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file") as found:
        InferenceSession(tmp_path / "none.onnx")
    assert isinstance(found.value, InvalidModel)


@pytest.mark.parametrize(("model", "error", "text"), [
    (".", InvalidModel, "cannot be read"), ("\0", InvalidModel, "cannot be read"),
    ("", InvalidModel, "there is no file"),
    (None, InvalidInput, "not as NoneType"), (5, InvalidInput, "not as int"), ([MODEL], InvalidInput, "not as list"),
    (np.frombuffer(MODEL, np.uint8), InvalidInput, "not as ndarray"), (b"", InvalidModel, "not an ONNX model"),
    (MODEL[:50], InvalidModel, "cut off"),
])  # fmt: skip
def test_models(model: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        InferenceSession(model)


@pytest.mark.parametrize(("name", "value"), [
    ("graph_optimization_level", 0), ("graph_optimization_level", []), ("intra_op_num_threads", True),
    ("intra_op_num_threads", 1025),
    ("memory_limit", -1), ("memory_limit", 1.5),
    ("relaxed_simd", "no"), ("free_dimension_overrides", [("N", 1)]),
    ("compile_time_limit", 0), ("compile_time_limit", "1"), ("code_size_limit", 1.5), ("code_size_limit", 0),
    ("preset", "fast"), ("preset", 1), ("preset", ["power"]), ("preset", ""),
    ("preferred_output_location", 5), ("preferred_output_location", ["cpu"]),
])  # fmt: skip
def test_session_options(name: str, value: Any) -> None:
    options = SessionOptions()
    setattr(options, name, value)
    with pytest.raises(InvalidInput):
        InferenceSession(MODEL, options)


@pytest.mark.parametrize(("options", "refused"), [
    ({"preset": "power"}, "preset"), ({"relaxed_simd": False}, "relaxed_simd"),
    ({"intra_op_num_threads": 2}, "intra_op_num_threads"),
    ({"sample_from": "logits", "code_size_limit": 1, "disabled_passes": ("unit_axes",)}, ""),
])  # fmt: skip
def test_options_in_pyodide(options: dict[str, Any], refused: str) -> None:
    """Sessions there take the options of the compiler, but not those of threads, of the GPU and of other hosts."""
    with pytest.raises(InvalidInput, match=rf"{refused}.* cannot be .* in Pyodide") if refused else nullcontext():
        check_options(SessionOptions(**options), PYODIDE)


@pytest.mark.parametrize("options", [{}, 5, "all"])
def test_what_are_no_session_options(options: Any) -> None:
    with pytest.raises(InvalidInput, match="sess_options cannot be of type"):
        InferenceSession(MODEL, options)


@pytest.mark.parametrize("providers", [5, [5], [None], b"wasm", [("wasm", 5)]])
def test_providers(providers: Any) -> None:
    with pytest.raises(InvalidInput, match="provider"):
        InferenceSession(MODEL, providers=providers)


@pytest.mark.parametrize("fault", [KeyError("k"), RecursionError("deep"), OverflowError("wide"), AssertionError()])
def test_what_is_not_ours_becomes_an_internal_error(fault: Exception) -> None:
    with pytest.raises(InternalError, match=f'Add "n": tracing it failed: {type(fault).__name__}.*please report'):
        with our_fault("tracing it", 'Add "n"'):
            raise fault


def test_a_lowering_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyruntime.frontend import registry

    broken = registry.Operator("Relu", "", 1, lambda t, x: {}["nothing"])
    monkeypatch.setattr(registry, "find", lambda *_: broken)
    with pytest.raises(InternalError, match=r'Relu "y" \(opset 20\): tracing it failed: KeyError') as found:
        InferenceSession(MODEL)
    assert isinstance(found.value, PyRuntimeError)


def test_dims_that_paddle_calls_by_a_question_mark_are_not_one() -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])], "g",
        [onnx.helper.make_tensor_value_info("x", 1, [1, "?", "?"])], [onnx.helper.make_tensor_value_info("y", 1, None)],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 11)], ir_version=8)
    x = np.ones((1, 4, 19), np.float32)
    np.testing.assert_array_equal(InferenceSession(model.SerializeToString()).run(None, {"x": x})[0], x)
