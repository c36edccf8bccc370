"""Runs in a stock Pyodide: models on `InferenceSession`, fed as lists and as buffers; what came out, as JSON.

`cases` is text: [model, [{input: [format of its elements, nested list]}, …]] of each; "" is for what has no buffer.
"""

import array
import base64
import gc
import json
import sys
import warnings
import weakref
from importlib import import_module

from pyruntime import ArrayProvider, InferenceSession, SessionOptions, quantize, quantize_static, register_provider
from pyruntime.ir.kernel import Call
from pyruntime.pyodide.tensors import Tensor


def flat(rows):
    return [x for row in rows for x in flat(row)] if isinstance(rows, list) else [rows]


def shape_of(rows):
    return [len(rows), *shape_of(rows[0])] if isinstance(rows, list) else []


def buffer(form, rows):
    """The same elements with a buffer."""
    if not form:
        return rows
    if form == "?":
        return memoryview(bytes(flat(rows))).cast("?", shape_of(rows))
    return memoryview(array.array(form, flat(rows))).cast("B").cast(form, shape_of(rows))


def plain(value):
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return [[key, round(number, 6)] for key, number in value.items()]
    assert isinstance(value, Tensor)
    if isinstance(value.data, bytes) and 0 not in value.shape:
        assert memoryview(value).tolist() == value.tolist() and memoryview(value).shape == value.shape
    return value.tolist()


def run(model, runs):
    found = []
    session = InferenceSession(f"/models/{model}" if "." in model else f"/models/{model}.onnx")
    for feeds in runs:
        lists = session.run(None, {name: rows for name, (_, rows) in feeds.items()})
        buffers = session.run(None, {name: buffer(*feed) for name, feed in feeds.items()})
        assert list(map(plain, lists)) == list(map(plain, buffers))
        found.append([plain(value) for value in lists])
    return found


def refused(action):
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def file(session, **how):
    return base64.b64encode(session.export(**how)).decode()


def quantized(feeds):
    """The file, bits of layers, and errors, of a model with fewer bits: of weights; of activations, too."""
    samples = [{n: buffer(*feed) for n, feed in feeds.items()}]
    made = [quantize("/models/digits.onnx", 8, samples=samples, smallest=4096)]
    made += [quantize_static("/models/digits.onnx", samples, calibration=c) for c in ("range", "percentile", "entropy")]
    return [[base64.b64encode(x.to_bytes()).decode(), [layer.bits for layer in x.layers], x.errors] for x in made]


def freed():
    """Whether a session that nobody holds any more takes its Program along."""
    session = InferenceSession("/models/affine.onnx")
    program = weakref.ref(session.programs.table[()])
    del session
    gc.collect()
    return program() is None


class Products(ArrayProvider):
    """Runs products in Python. jobs: after so many it fails"""

    name = "products"
    options = {"jobs": 1000}

    def __init__(self, jobs=0):
        self.jobs = jobs
        self.log = []

    def open(self, options, threads):
        self.log.append(made := Products(options["jobs"]))
        return made

    def supports(self, kernel):
        return "" if isinstance(kernel, Call) and kernel.routine == "matmul" else "only products"

    def compile(self, part):
        a, b = (part.inputs.index(t) for t in part.kernels[0].args)
        return lambda inputs, outputs, symbols: lambda: self.multiply(inputs[a], inputs[b], outputs[0])

    def multiply(self, a, b, out):
        if len(self.log) >= self.jobs:
            raise RuntimeError("no device")
        self.log.append(type(out).__name__)
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = sum(a[i, k] * b[k, j] for k in range(b.shape[0]))


def with_provider():
    """Runs on a provider in Python, which fails in the second run; what it did, results, moved nodes, a warning."""
    register_provider(factory := Products())
    session = InferenceSession("/models/affine.onnx", providers=[("products", {"jobs": 1}), "wasm"])
    with warnings.catch_warnings(record=True) as caught:
        results = [plain(session.run(None, {"x": [[1.0] * 4] * rows})[0]) for rows in (1, 2, 1)]
    moved = [dict(move) for move in session.explain()["moved"]]
    used = session.get_providers(), factory.log[0].log
    return results, moved, used, [str(w.message) for w in caught]


def main(cases):
    assert "numpy" not in sys.modules and freed()
    session = InferenceSession(open("/models/affine.onnx", "rb").read())
    rows = [[1.0] * 4]
    return json.dumps({
        "outputs": [run(*case) for case in json.loads(cases)],
        "inputs": [[i.name, i.type, i.shape] for i in session.get_inputs()],
        "fixed": InferenceSession(
            "/models/affine.onnx", SessionOptions(free_dimension_overrides={"batch": 2})
        ).get_inputs()[0].shape,
        "refused": [refused(action) for action in (
            lambda: session.run(None, {"x": [[1, 2, 3]]}),
            lambda: session.run(None, {"x": [[1, 2], [3]]}),
            lambda: session.run(None, {"x": array.array("d", range(4))}),
            lambda: session.run(None, {"x": object()}),
            lambda: session.run(["z"], {"x": rows}),
            lambda: session.run(None, {"y": rows}),
            lambda: session.run(None, {"x": rows}, object()),
            lambda: InferenceSession("/models/none.onnx"),
            lambda: InferenceSession("/models/unsupported.onnx"),
            lambda: InferenceSession("/models/affine.onnx", SessionOptions(memory_limit=100)),
            lambda: InferenceSession("/models/gather.onnx").run(None, {"x": [1.0, 2.0], "i": [5]}),
            lambda: import_module("pyruntime.native"),
            lambda: session.export(weights=False),
            lambda: session.export(assume=["f16"]),
            lambda: InferenceSession("/models/zipped.onnx").export(),
        )],
        "files": [
            file(session), file(session, providers=["webgpu", "wasm"]), file(InferenceSession("/models/upper.onnx")),
        ],
        "quantized": quantized(json.loads(cases)[-1][1][0]),
        "provider": with_provider(),
        "again": plain(session.run(["y"], {"x": rows})[0]),
    })  # fmt: skip
