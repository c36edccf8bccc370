# ruff: noqa: E402  as in a page: the line that makes `import onnxruntime` find the engine comes first
"""Programs written for onnxruntime, unchanged on the desktop and in Pyodide.

`array(form, shape, numbers)` makes a feed: with NumPy its array, else an object with a buffer. Each program returns
what JSON can hold."""

import json
import sys

sys.modules.pop("onnxruntime", None)
if sys.platform == "emscripten":
    import pyruntime.onnxruntime  # noqa: F401  from here on `import onnxruntime` finds it

import onnxruntime as ort
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, NoSuchFile

FOLDER = "/models"
PROVIDERS = ["CPUExecutionProvider"]
FORMS = {"f": "float32", "q": "int64"}


def array(form, shape, numbers):
    try:
        import numpy as np
    except ImportError:
        from array import array as flat

        return memoryview(flat(form, numbers)).cast("B").cast(form, shape)
    return np.array([*numbers], FORMS[form]).reshape(shape)


def rows(x):
    return [
        round(v, 4) if isinstance(v, float) else v
        for row in x.tolist()
        for v in (row if isinstance(row, list) else [row])
    ]


def ramp(*shape):
    count = 1
    for n in shape:
        count *= n
    return array("f", shape, [n / count for n in range(count)])


def classify():
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = 2
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.load_model_format", "ONNX")
    session = InferenceSession(f"{FOLDER}/digits.onnx", options, providers=PROVIDERS)
    (probabilities,) = session.run(["probabilities"], {session.get_inputs()[0].name: ramp(1, 1, 28, 28)})
    found = probabilities.tolist()[0]
    return [found.index(max(found)), rows(probabilities), [*probabilities.shape]]


def from_bytes():
    with open(f"{FOLDER}/affine.onnx", "rb") as file:
        session = ort.InferenceSession(file.read(), providers=["CUDAExecutionProvider", *PROVIDERS])
    return [session.get_providers()[-1], rows(session.run(None, {"x": ramp(3, 4)})[0])]


def describe():
    session = ort.InferenceSession(f"{FOLDER}/affine.onnx", providers=PROVIDERS)
    meta = session.get_modelmeta()
    return [
        [[x.name, x.type, x.shape] for x in (*session.get_inputs(), *session.get_outputs())],
        [meta.graph_name, meta.domain, meta.version, meta.custom_metadata_map],
        session.get_overridable_initializers(), [*session.get_provider_options()][-1],
        session.get_session_options() is None,
    ]  # fmt: skip


def bound():
    session = ort.InferenceSession(f"{FOLDER}/affine.onnx", providers=PROVIDERS)
    binding = session.io_binding()
    found = []
    for count in (1, 3):
        binding.bind_cpu_input("x", ramp(count, 4))
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        found += [rows(x) for x in binding.copy_outputs_to_cpu()]
        found.append([binding.get_outputs()[0].shape(), binding.get_outputs()[0].data_type()])
    return found


def values():
    x = ort.OrtValue.ortvalue_from_numpy(ramp(2, 4))
    session = ort.InferenceSession(f"{FOLDER}/affine.onnx", providers=PROVIDERS)
    (y,) = session.run_with_ort_values(None, {"x": x})
    zeros = ort.OrtValue.ortvalue_from_shape_and_type([2, 4], 1)
    zeros.update_inplace(ramp(2, 4))
    return [
        x.shape(), x.data_type(), x.element_type(), x.is_tensor(), x.device_name(), x.tensor_size_in_bytes(),
        y.shape(), rows(y.numpy()), zeros.shape(), rows(session.run(None, {"x": zeros.numpy()})[0]),
    ]  # fmt: skip


def mistakes():
    found = []
    session = ort.InferenceSession(f"{FOLDER}/affine.onnx", providers=PROVIDERS)
    for kind, action in (
        (InvalidArgument, lambda: session.run(None, {"x": ramp(2, 3)})),
        (InvalidArgument, lambda: session.run(["none"], {"x": ramp(2, 4)})),
        (NoSuchFile, lambda: ort.InferenceSession(f"{FOLDER}/none.onnx", providers=PROVIDERS)),
        ((Fail, InvalidArgument, ValueError), lambda: session.run(None, {"none": ramp(2, 4)})),
    ):
        try:
            action()
            found.append("no error")
        except kind:
            found.append("refused")
    return [*found, rows(session.run(None, {"x": ramp(2, 4)})[0])]


def later():
    found = []
    session = ort.InferenceSession(f"{FOLDER}/affine.onnx", providers=PROVIDERS)

    def done(results, data, error):
        found.append([rows(results[0]), data, error])

    session.run_async(None, {"x": ramp(2, 4)}, done, "mine")
    import time

    while not found:
        time.sleep(0.01)
    return found


def scores():
    """A classifier of scikit-learn: its output is a list of dicts."""
    session = ort.InferenceSession(f"{FOLDER}/zipped.onnx", providers=PROVIDERS)
    found = session.run(None, {"x": ramp(2, 3)})
    return [
        [[k if isinstance(k, str) else int(k), round(float(v), 4)] for k, v in row.items()]
        for x in found if isinstance(x, list) for row in x
    ]  # fmt: skip


def loops():
    """A decoder's shape of use: outputs are fed again."""
    session = ort.InferenceSession(f"{FOLDER}/joined.onnx", providers=PROVIDERS)
    joined = array("f", (1,), [1.0])
    for _ in range(5):
        (joined,) = session.run(None, {"a": joined, "b": joined})
    return [[*joined.shape], rows(joined)[:4]]


def environment():
    ort.set_default_logger_severity(3)
    ort.disable_telemetry_events()
    options = ort.RunOptions()
    options.logid = "run"
    session = ort.InferenceSession(f"{FOLDER}/affine.onnx", providers=PROVIDERS)
    session.disable_fallback()
    result = session.run(None, {"x": ramp(1, 4)}, options)[0]
    version = ort.__version__.split(".")
    return ["CPUExecutionProvider" in ort.get_available_providers(), ort.get_device(), len(version), rows(result)]


PROGRAMS = [classify, from_bytes, describe, bound, values, mistakes, later, scores, loops, environment]


def main(folder="", provider=""):
    global FOLDER
    FOLDER = folder or FOLDER
    if provider:
        PROVIDERS[:] = [provider]
    return json.dumps({program.__name__: program() for program in PROGRAMS})
