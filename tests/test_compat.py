"""Programs written for onnxruntime: each script here runs with both, and must print the same."""

from __future__ import annotations

import copy
import ctypes
import json
import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import pyruntime
from kit.docs import ROOT
from pyruntime import InferenceSession, InvalidInput, NotSupported, ort_errors
from pyruntime.api import names
from pyruntime.options import LEVELS
from scripts import compatibility

DIGITS = str(ROOT / "demo" / "digits" / "digits.onnx")
IMAGE = np.linspace(0, 1, 784, dtype=np.float32).reshape(1, 1, 28, 28)
TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 3] x) => (float[N, 3] y, float[N] z)
    <float[3] w = {1, 2, 3}> { y = Mul (x, w)  axis = Constant <value_ints = [1]> ()
    z = ReduceSum <keepdims = 0> (y, axis) }"""
ADD = onnx.parser.parse_model(TEXT).SerializeToString()
X = np.arange(6, dtype=np.float32).reshape(2, 3)


class _Ours:
    """The module that `import onnxruntime` returns after `import pyruntime.onnxruntime`; here both are needed."""

    def __getattr__(self, name: str) -> Any:
        return names.NAMES[name]


PEERS = [pytest.param(_Ours(), id="ours"), pytest.param(onnxruntime, id="theirs")]


def options(ort: Any) -> Any:
    found = ort.SessionOptions()
    found.log_severity_level = 4
    return found


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────


def script(ort: ModuleType | Any) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "1"
    assert "CPU" in ort.get_device() and "CPUExecutionProvider" in ort.get_available_providers()
    providers = [("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})]
    session = ort.InferenceSession(path_or_bytes=DIGITS, sess_options=options, providers=providers)
    assert session.get_providers() == ["CPUExecutionProvider"] == list(session.get_provider_options())
    (name,) = [x.name for x in session.get_inputs()]
    run = ort.RunOptions()
    run.log_severity_level = 3
    run.logid = "mine"
    run.terminate = False
    run.only_execute_path_to_fetches = True
    run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert run.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    first = session.run(None, {name: IMAGE}, run)[0]
    session.set_providers(["CPUExecutionProvider"])
    session.disable_fallback()
    session.enable_fallback()
    np.testing.assert_array_equal(session.run(None, {name: IMAGE})[0], first)
    return first


def test_one_script_for_both() -> None:
    np.testing.assert_allclose(script(_Ours()), script(onnxruntime), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("ort", PEERS)
def test_what_a_model_tells(ort: Any) -> None:
    model = onnx.load_model_from_string(ADD)
    model.producer_name, model.domain, model.doc_string, model.model_version = "me", "my.models", "doubles", 3
    model.graph.doc_string = "a graph"
    helper.set_model_props(model, {"labels": "a\nb"})
    told = ort.InferenceSession(model.SerializeToString()).get_modelmeta()
    assert (told.producer_name, told.domain, told.description, told.version) == ("me", "my.models", "doubles", 3)
    assert (told.graph_name, told.graph_description, told.custom_metadata_map) == ("g", "a graph", {"labels": "a\nb"})
    assert ort.InferenceSession(ADD).get_modelmeta().version == 2**63 - 1


@pytest.mark.parametrize("ort", PEERS)
def test_unknown_providers_are_warned_of(ort: Any) -> None:
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        session = ort.InferenceSession(ADD, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize("ort", PEERS)
@pytest.mark.parametrize(("kind", "value", "result"), [
    ("float", [[1, 2, 3]], [[1.0, 2.0, 3.0]]), ("float", [np.ones(3)], [[1.0, 1.0, 1.0]]),
    ("int64", [[1, True, 3]], [[1, 1, 3]]), ("bool", [[0, 1, 1]], [[False, True, True]]),
    ("string", [["a", "b", "c"]], [["a", "b", "c"]]), ("string", [[1, 2.5, 3]], [["1", "2.5", "3"]]),
    ("float16", [[1, 2, 3]], [[1.0, 2.0, 3.0]]),
])  # fmt: skip
def test_lists_are_taken(ort: Any, kind: str, value: Any, result: Any) -> None:
    graph = f"g ({kind}[N, 3] x) => ({kind}[N, 3] y) {{ y = Identity (x) }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}')
    (y,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": value})
    assert y.tolist() == result


@pytest.mark.parametrize("ort", PEERS)
def test_one_element_is_a_scalar(ort: Any) -> None:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float x) => (float y) { y = Abs (x) }')
    session = ort.InferenceSession(model.SerializeToString(), options(ort))
    assert [float(session.run(None, {"x": x})[0].item()) for x in (np.float32([-2]), [-3.0])] == [2, 3]


def test_errors_are_caught_by_the_names_of_the_peer() -> None:
    real = onnxruntime.capi.onnxruntime_pybind11_state
    assert ort_errors.__all__ == sorted(
        n for n, k in vars(real).items() if isinstance(k, type) and issubclass(k, Exception)
    )
    x = np.ones((2, 3), np.float32)
    garbage, unknown = b"\0garbage", ADD.replace(b"Mul", b"Mux")
    run = {"a": {}, "b": {"x": x[0]}, "c": {"x": x.astype("f8")}, "d": {"x": np.ones((2, 4), "f4")}}
    attempts = [lambda ort, m=m: ort.InferenceSession(m, options(ort)) for m in ("/none.onnx", garbage, unknown, 5)]
    attempts += [lambda ort, f=f: ort.InferenceSession(ADD).run(None, f) for f in run.values()]
    attempts += [lambda ort: ort.InferenceSession(ADD).run(["none"], {"x": x})]
    attempts += [lambda ort: ort.SessionOptions().get_session_config_entry("none")]
    for attempt in attempts:
        with pytest.raises(Exception) as theirs:
            attempt(onnxruntime)
        with pytest.raises(pyruntime.PyRuntimeError) as ours:
            attempt(_Ours())
        name = type(theirs.value).__name__
        assert name in [kind.__name__ for kind in type(ours.value).__mro__], name


@pytest.mark.parametrize("model", [b"<html>", b"\x08", ADD[: len(ADD) // 2], "there/is/none.onnx"], ids=str)
def test_what_programs_look_for_in_messages_about_files(model: Any, tmp_path: Path) -> None:
    """Programs search errors for these words to download a damaged file again; both engines use them."""
    if isinstance(model, bytes):
        (tmp_path / "model.onnx").write_bytes(model)
        model = str(tmp_path / "model.onnx")
    said = []
    for make in (onnxruntime.InferenceSession, InferenceSession):
        with pytest.raises(Exception) as caught:
            make(model)
        words = re.findall("INVALID_PROTOBUF|Protobuf parsing failed|NO_SUCHFILE|File doesn't exist", str(caught.value))
        said.append(words)
    assert said[0] == said[1] != []


def pickable(ort: Any) -> type:
    """A picklable session as in insightface, which others have copied."""

    class Pickable(ort.InferenceSession):  # type: ignore[misc]
        def __init__(self, path: str, **more: Any) -> None:
            super().__init__(path, **more)
            self.path = path

        def __getstate__(self) -> dict[str, str]:
            return {"path": self.path}

        def __setstate__(self, state: dict[str, str]) -> None:
            self.__init__(state["path"])  # type: ignore[misc]

    return Pickable


@pytest.mark.parametrize("ort", PEERS)
def test_private_names_that_programs_use(ort: Any) -> None:
    """optimum reads a session's path, users of kokoro-onnx set it, and generators read the other attributes."""
    session = copy.copy(pickable(ort)(DIGITS, providers=["CPUExecutionProvider"]))
    assert session._model_path == DIGITS
    session._model_path = "elsewhere"
    assert session._model_path == "elsewhere" and ort.InferenceSession(ADD)._model_path is None
    assert (session._inputs_meta[0].name, session._outputs_meta[0].name) == ("image", "probabilities")
    (found,) = session._sess.run(["probabilities"], {"image": IMAGE}, None)
    assert found.shape == (1, 10)


# ── values and bindings ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ort", PEERS)
def test_ort_values(ort: Any) -> None:
    x = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(x)
    x[0, 0] = 7
    told = value.data_type(), value.shape(), value.element_type(), value.device_name(), value.tensor_size_in_bytes()
    assert told == ("tensor(float)", [2, 3], 1, "cpu", 24)
    assert (value.has_value(), value.is_tensor(), value.is_sparse_tensor(), value.is_tensor_sequence()) == (
        True, True, False, False,
    )  # fmt: skip
    assert value.numpy()[0, 0] == 7 and value.data_ptr() == x.ctypes.data
    np.testing.assert_array_equal(np.asarray(value), x)
    np.testing.assert_array_equal(np.from_dlpack(value), x)
    inner = value._ortvalue  # as programs that hand tensors to torch do
    shared = type(inner).from_dlpack(inner.to_dlpack(), False)
    assert shared.numpy()[0, 0] == 7 and shared.data_ptr() == x.ctypes.data
    flags = ort.OrtValue.ortvalue_from_numpy(np.uint8([1, 0]))._ortvalue
    assert type(flags).from_dlpack(flags.to_dlpack(), True).numpy().tolist() == [True, False]
    other = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    other.update_inplace(X)
    np.testing.assert_array_equal(other.numpy(), X)
    bits = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.uint16([0x3F80, 0]), TensorProto.BFLOAT16)
    assert (bits.data_type(), bits.shape()) == ("tensor(bfloat16)", [2])
    session = ort.InferenceSession(ADD)
    y, z = session.run_with_ort_values(None, {"x": other})
    np.testing.assert_array_equal(y.numpy(), X * [1, 2, 3])
    (z,) = session.run(["z"], {"x": other})
    np.testing.assert_array_equal(z, (X * [1, 2, 3]).sum(1))


@pytest.mark.parametrize("ort", PEERS)
def test_bindings(ort: Any) -> None:
    session = ort.InferenceSession(ADD)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("z")
    binding.bind_output("y", "cpu")
    session.run_with_iobinding(binding)
    z, y = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(y, X * [1, 2, 3])
    np.testing.assert_array_equal(z, y.sum(1))
    held, written = X.copy(), np.zeros((2, 3), np.float32)
    binding.bind_input("x", "cpu", 0, np.float32, [2, 3], held.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, [2, 3], written.ctypes.data)
    total = ort.OrtValue.ortvalue_from_shape_and_type([2], TensorProto.FLOAT)
    binding.bind_ortvalue_output("z", total)
    for factor in (1, 2):
        held[:] = X * factor
        binding.synchronize_inputs()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        np.testing.assert_array_equal(written, X * [1, 2, 3] * factor)
        np.testing.assert_array_equal(total.numpy(), written.sum(1))
    assert len(binding.get_outputs()) == 2
    binding.clear_binding_outputs()
    with pytest.raises(RuntimeError):
        session.run_with_iobinding(binding)


def test_bindings_of_the_wrong_kind_are_refused() -> None:
    session = InferenceSession(ADD)
    binding = session.io_binding()
    with pytest.raises(InvalidInput, match='output "none" does not exist'):
        binding.bind_output("none")
    with pytest.raises(NotSupported, match='cannot be made on "cuda"'):
        binding.bind_output("y", "cuda")
    with pytest.raises(InvalidInput, match="another session"):
        InferenceSession(ADD).run_with_iobinding(binding)
    binding.bind_cpu_input("x", X)
    memory = (ctypes.c_float * 4)()
    binding.bind_output("y", "cpu", 0, np.float32, [2, 2], ctypes.addressof(memory))
    with pytest.raises(InvalidInput, match=r"bound to memory for tensor\(float\) \[2, 2\], but is"):
        session.run_with_iobinding(binding)


@pytest.mark.parametrize("ort", PEERS)
def test_runs_on_another_thread(ort: Any) -> None:
    many = options(ort)
    many.intra_op_num_threads = 2
    session = ort.InferenceSession(ADD, many)
    told, done = [], threading.Semaphore(0)

    def callback(results: list[Any], data: Any, error: str) -> None:
        told.append((len(results), data, bool(error)))
        done.release()

    for x in (X, np.ones((2, 4), np.float32)):
        session.run_async(None, {"x": x}, callback, "data")
        assert done.acquire(timeout=30)
    assert told == [(2, "data", False), (0, "data", True)]


# ── options ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["SessionOptions", "RunOptions"])
def test_options_are_onnxruntimes_and_defaults_too(kind: str) -> None:
    ours, theirs = getattr(_Ours(), kind)(), getattr(onnxruntime, kind)()
    for name in (name for name in dir(theirs) if not name.startswith("_")):
        if callable(getattr(theirs, name)):
            assert callable(getattr(ours, name)), name
            continue
        want = getattr(theirs, name)
        assert getattr(getattr(ours, name), "name", getattr(ours, name)) == getattr(want, "name", want), name
        setattr(ours, name, getattr(ours, name))
    with pytest.raises(AttributeError):
        ours.none = 1


@pytest.mark.parametrize(("name", "value", "error"), [
    ("intra_op_num_threads", "2", InvalidInput), ("execution_mode", 1, InvalidInput), ("logid", 5, InvalidInput),
    ("graph_optimization_level", 1, InvalidInput),
])  # fmt: skip
def test_values_of_options_are_checked(name: str, value: Any, error: type[Exception]) -> None:
    found = pyruntime.SessionOptions()
    setattr(found, name, value)
    with pytest.raises(error, match=name):
        InferenceSession(ADD, found)


def test_what_cannot_be_is_refused_with_a_way_out() -> None:
    found = pyruntime.SessionOptions()
    for attempt, text in (
        (lambda: found.register_custom_ops_library("x.so"), "pyruntime.op"),
        (lambda: names.NAMES["register_execution_provider_library"]("x", "y.so"), "register_provider"),
    ):
        with pytest.raises(NotSupported, match=text):
            attempt()


@pytest.mark.parametrize("ort", PEERS)
def test_weights_can_be_given(ort: Any) -> None:
    found = options(ort)
    weight = ort.OrtValue.ortvalue_from_numpy(np.float32([10, 20, 30]))  # which onnxruntime needs to live
    found.add_initializer("w", weight)
    np.testing.assert_array_equal(ort.InferenceSession(ADD, found).run(["y"], {"x": X})[0], X * [10, 20, 30])


@pytest.mark.parametrize("ort", PEERS)
def test_files_of_weights_can_be_given(ort: Any, tmp_path: Path) -> None:
    weight = np.float32([4, 5, 6])
    model = onnx.load_model_from_string(ADD)
    tensor = onnx.external_data_helper
    model.graph.initializer[0].raw_data = weight.tobytes()
    model.graph.initializer[0].ClearField("float_data")
    tensor.set_external_data(model.graph.initializer[0], "weights.bin", offset=0, length=12)
    model.graph.initializer[0].ClearField("raw_data")
    data, file = model.SerializeToString(), weight.tobytes()  # which onnxruntime needs to live
    given = options(ort)
    given.add_external_initializers_from_files_in_memory(["weights.bin"], [file], [12])
    np.testing.assert_array_equal(ort.InferenceSession(data, given).run(["y"], {"x": X})[0], X * weight)
    (tmp_path / "weights.bin").write_bytes(file)
    given = options(ort)
    given.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path))
    np.testing.assert_array_equal(ort.InferenceSession(data, given).run(["y"], {"x": X})[0], X * weight)


@pytest.mark.parametrize("ort", PEERS)
def test_dims_by_their_meaning(ort: Any) -> None:
    model = onnx.load_model_from_string(ADD)
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    found = options(ort)
    found.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    assert ort.InferenceSession(model.SerializeToString(), found).get_inputs()[0].shape == [2, 3]


def test_levels_are_the_compilers() -> None:
    level = pyruntime.GraphOptimizationLevel
    assert tuple(level) == LEVELS
    for member in onnxruntime.GraphOptimizationLevel.__members__.values():
        assert level(int(member)).name == member.name


def test_every_name_is_told_of() -> None:
    """docs/compatibility.md; `python -m scripts.compatibility` writes it."""
    assert compatibility.written() == (ROOT / compatibility.PAGE).read_text()


# ── the process ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ort", PEERS)
def test_a_trace(ort: Any, tmp_path: Path) -> None:
    found = options(ort)
    found.enable_profiling = True
    found.profile_file_prefix = str(tmp_path / "trace")
    session = ort.InferenceSession(DIGITS, found)
    session.run(None, {session.get_inputs()[0].name: IMAGE})
    assert session.get_profiling_start_time_ns() > 0
    path = Path(session.end_profiling())
    assert path.parent == tmp_path and path.name.startswith("trace_") and session.end_profiling() == ""
    events = json.loads(path.read_text())
    assert {"session_initialization", "model_run"} <= {e["name"] for e in events if e["cat"] == "Session"}
    nodes = [e for e in events if e["cat"] == "Node"]
    assert nodes and all(e["ph"] == "X" and e["ts"] >= 0 and e["dur"] >= 0 and e["pid"] and e["tid"] for e in nodes)
    assert {e["args"]["provider"] for e in nodes} == {"CPUExecutionProvider"}
    assert all(e["args"]["op_name"] and e["args"]["node_index"].isdigit() for e in nodes)


def test_messages_by_severity(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pyruntime")
    InferenceSession(ADD)
    assert not caplog.records
    found = pyruntime.SessionOptions(log_severity_level=0, logid="mine")
    session = InferenceSession(ADD, found)
    session.run(None, {"x": X})
    quiet = pyruntime.RunOptions()
    quiet.log_severity_level = 3
    session.run(None, {"x": X}, quiet)
    assert [(r.name, r.levelname) for r in caplog.records] == [("pyruntime.mine", "INFO"), ("pyruntime.mine", "DEBUG")]
    names.NAMES["set_default_logger_severity"](1)
    try:
        InferenceSession(ADD)
    finally:
        names.NAMES["set_default_logger_severity"](2)
    assert caplog.records[-1].name == "pyruntime" and "made in" in caplog.records[-1].message


def python(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(arguments or ("-c", code))]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_what_makes_models_is_of_an_installed_onnxruntime(tmp_path: Path) -> None:
    """Quantising and onnx's backend interface; calibration runs on this engine. Weights of seven bits: of eight
    onnxruntime adds pairs up in 16 bits on processors without VNNI, which are too few."""
    program = tmp_path / "program.py"
    program.write_text(f"""if True:
        import json, numpy as np, onnxruntime as ort, onnxruntime.backend as backend
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static
        image = np.linspace(0, 1, 784, dtype=np.float32).reshape(1, 1, 28, 28)
        class Reader(CalibrationDataReader):
            feeds = iter([{{"image": image}}, {{"image": image / 2}}])
            def get_next(self):
                return next(self.feeds, None)
        quantize_dynamic({DIGITS!r}, "dynamic.onnx", reduce_range=True)
        quantize_static({DIGITS!r}, "static.onnx", Reader(), quant_format=QuantFormat.QDQ, reduce_range=True)
        found = [backend.prepare({DIGITS!r}).run(image)[0]]
        found += [ort.InferenceSession(f"{{n}}.onnx").run(None, {{"image": image}})[0] for n in ("dynamic", "static")]
        print(json.dumps([x.tolist() for x in found]), ort.__file__)""")
    told = []
    for before in ([], ["-m", "pyruntime.onnxruntime"]):
        command = [sys.executable, *before, str(program)]
        path = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=120, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.rsplit(maxsplit=1))
    np.testing.assert_allclose(json.loads(told[0][0]), json.loads(told[1][0]), atol=0.01)
    assert "pyruntime" not in told[0][1] and "pyruntime" in told[1][1]


def test_its_distribution_has_a_version() -> None:
    """Where onnxruntime is not installed."""
    code = """if True:
        import sys, importlib.metadata, pyruntime.onnxruntime as ort
        sys.path.clear()
        assert importlib.metadata.version("onnxruntime") == ort.__version__
        assert importlib.metadata.metadata("onnxruntime")["Name"] == "onnxruntime"
        try:
            importlib.metadata.version("onnxruntime-gpu")
        except importlib.metadata.PackageNotFoundError:
            print("only that")"""
    found = python(code=code)
    assert found.stdout == "only that\n", found.stderr


def test_a_program_that_imports_onnxruntime(tmp_path: Path) -> None:
    """A program runs unchanged, either with one line before it or with `python -m`."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, numpy as np, onnxruntime as ort\n"
        "from onnxruntime import InferenceSession, SessionOptions\n"
        "from onnxruntime.capi import _pybind_state as C\n"
        "from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument\n"
        "from onnxruntime.capi.onnxruntime_inference_collection import OrtValue\n"
        "assert C.get_available_providers() == ort.get_available_providers() and OrtValue is ort.OrtValue\n"
        "assert tuple(map(int, ort.__version__.split('.')[:2])) >= (1, 20)\n"
        f"session = InferenceSession({DIGITS!r})\n"
        "try: session.run(None, {})\n"
        "except ValueError: print(type(session).__module__, *sys.argv[1:])\n"
    )
    told = python("-m", "pyruntime.onnxruntime", str(program), "a", "b")
    assert (told.returncode, told.stdout) == (0, "pyruntime.api.session a b\n"), told.stderr
    told = python(code=f"import pyruntime.onnxruntime\nexec(open({str(program)!r}).read())")
    assert told.stdout == "pyruntime.api.session\n", told.stderr
    told = python(code="import onnxruntime\nimport pyruntime.onnxruntime")
    assert told.returncode == 1 and "onnxruntime is imported already" in told.stderr
