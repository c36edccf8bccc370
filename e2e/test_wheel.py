"""The wheel in stock Pyodides, where there is no NumPy: in Node.js by its lock file, in a worker in Chromium by
micropip; `InferenceSession` finds there what onnxruntime does."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from gguf import GGMLQuantizationType
from onnx import TensorProto, helper
from playwright.sync_api import Browser

from e2e.stock_pyodide import RUN, run_in_worker
from kit import gguf_models, small_models
from kit.chromium import ROOT
from pyruntime import InferenceSession, __version__, quantize, quantize_static

FORMATS = {"float32": "f", "int64": "q", "bool": "?", "int8": "b", "object": ""}
RNG = np.random.default_rng(0)


def upper() -> onnx.ModelProto:
    """Strings, by Python in the middle of a run."""
    nodes = [helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER", locale="C")]
    made = small_models.model(nodes, [("x", TensorProto.STRING, ["n"])], [("y", TensorProto.STRING, ["n"])])
    return made


def reshape() -> onnx.ModelProto:
    """y = x in the shape s: one Program for each value of s."""
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    inputs = [("x", TensorProto.FLOAT, ["n"]), ("s", TensorProto.INT64, [2])]
    return small_models.model(nodes, inputs, [("y", TensorProto.FLOAT, ["a", "b"])])


def gather() -> onnx.ModelProto:
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    inputs = [("x", TensorProto.FLOAT, ["n"]), ("i", TensorProto.INT64, ["m"])]
    return small_models.model(nodes, inputs, [("y", TensorProto.FLOAT, ["m"])])


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def tokens(count: int, past: int) -> dict[str, np.ndarray]:
    """Feeds of a decoder."""
    ids = np.arange(3, 3 + count)[None]
    return {"input_ids": ids, "attention_mask": np.ones((1, past + count), np.int64), "position_ids": past + ids - 3}


CASES: list[tuple[str, list[dict[str, Any]]]] = [
    ("affine", [{"x": floats(2, 4)}, {"x": floats(5, 4)}]),
    ("external", [{"x": floats(3, 4)}]),
    ("types", [{"i": np.array([2**40, -3, 7]), "p": np.array([True, False])}]),
    ("number", [{"x": np.array(5)}]),
    ("joined", [{"a": floats(2), "b": floats(2)}, {"a": floats(2), "b": floats(3)}]),
    ("zipped", [{"x": floats(2, 3)}]),
    ("overridable", [{"x": floats(2)}, {"x": floats(2), "w": floats(2)}]),
    ("upper", [{"x": np.array(["pear", "fig"], object)}]),
    ("reshape", [{"x": floats(6), "s": np.array([2, 3])}, {"x": floats(6), "s": np.array([3, -1])}]),
    ("decoder.gguf", [{**tokens(2, 3), **{f"past_key_values.{n}.{part}": floats(1, 2, 3, 16)
     for n in range(3) for part in ("key", "value")}}]),
    ("digits", [{"image": RNG.random((1, 1, 28, 28), np.float32)}]),
]  # fmt: skip


@pytest.fixture(scope="module")
def models(built: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    small_models.write(folder)
    for make in (upper, reshape, gather):
        onnx.save(make(), folder / f"{make.__name__}.onnx")
    gguf_models.write(folder / "decoder.gguf", "llama", GGMLQuantizationType.Q4_1)
    (folder / "digits.onnx").write_bytes((ROOT / "demo/digits/digits.onnx").read_bytes())
    names = [p.name for p in folder.iterdir() if p.suffix in (".onnx", ".bin", ".gguf")]
    (folder / "list.json").write_text(json.dumps(names))
    cases = [
        [name, [{k: [FORMATS[x.dtype.name], x.tolist()] for k, x in run.items()} for run in runs]]
        for name, runs in CASES
    ]
    (folder / "cases.json").write_text(json.dumps(cases))
    return folder


def check(found: Any, models: Path) -> None:
    for (name, runs), outputs in zip(CASES, found["outputs"], strict=True):
        native = InferenceSession(models / name) if name.endswith(".gguf") else None
        session = native or onnxruntime.InferenceSession(models / f"{name}.onnx")
        for feeds, ours in zip(runs, outputs, strict=True):
            for theirs, mine in zip(session.run(None, feeds), ours, strict=True):
                if isinstance(theirs, list):
                    rows = [[[key, pytest.approx(x, abs=1e-5)] for key, x in row.items()] for row in theirs]
                    assert mine == rows, name
                elif theirs.dtype.kind == "f":
                    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, err_msg=name)
                else:
                    assert mine == theirs.tolist(), name
    assert found["inputs"] == [["x", "tensor(float)", ["batch", 4]]] and found["fixed"] == [2, 4]
    wanted = [
        'InvalidInput: input "x" has 3 elements along axis 1, expected 4',
        'InvalidInput: input "x" has rows of different lengths',
        'InvalidInput: input "x" has element type float64, expected float32',
        'InvalidInput: input "x" is not a tensor: object (give a list, a memoryview or an array)',
        "InvalidInput: output \"z\" does not exist (outputs are ['y'])",
        "InvalidInput: input \"y\" does not exist (inputs are ['x'])",
        "InvalidInput: run_options cannot be of type object",
        'ModelNotFound: there is no file "/models/none.onnx"',
        "UnsupportedOp: Frobnicate",
        "OutOfMemory: ",
        "ExecutionError: Gather",
        "ModuleNotFoundError: the desktop's runtime needs wasmtime, for which there is no Pyodide",
        "InvalidInput: in Pyodide a file always has its weights",
        "InvalidInput: only a Program for the GPU can assume anything of it",
        "InvalidInput: this model gives maps",
    ]
    for ours, start in zip(found["refused"], wanted, strict=True):
        assert ours and ours.startswith(start), (ours, start)
    for file, model in zip(found["files"], ("affine", "affine", "upper"), strict=True):
        feeds = next(runs for name, runs in CASES if name == model)[0]
        (ours,) = InferenceSession(base64.b64decode(file)).run(None, feeds)
        (theirs,) = onnxruntime.InferenceSession(models / f"{model}.onnx").run(None, feeds)
        if model == "upper":
            assert ours.tolist() == theirs.tolist()
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    path, samples = models / "digits.onnx", CASES[-1][1]
    made = [quantize(path, 8, samples=samples, smallest=4096)]
    made += [quantize_static(path, samples, calibration=c) for c in ("range", "percentile", "entropy")]
    for (file, bits, errors), native in zip(found["quantized"], made, strict=True):
        assert bits == [layer.bits for layer in native.layers] and 8 in bits
        assert errors == pytest.approx(native.errors, rel=1e-2)
        assert native is not made[0] or base64.b64decode(file) == native.to_bytes()
        graphs = [onnx.load_from_string(data).graph for data in (base64.b64decode(file), native.to_bytes())]
        assert [n.op_type for n in graphs[0].node] == [n.op_type for n in graphs[1].node]
        for a, b in zip(*(graph.initializer for graph in graphs), strict=True):  # sums are rounded otherwise
            x, y = onnx.numpy_helper.to_array(a).astype(float), onnx.numpy_helper.to_array(b).astype(float)
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=float(a.data_type != TensorProto.FLOAT), err_msg=a.name)
    row = np.maximum(small_models.WEIGHT.sum(0) + small_models.BIAS, 0)[None]
    np.testing.assert_allclose(found["again"], row, rtol=1e-5)
    results, moved, used, warnings = found["provider"]
    for rows, result in zip((1, 2, 1), results, strict=True):
        np.testing.assert_allclose(result, np.repeat(row, rows, 0), rtol=1e-5)
    assert used == [["products", "CPUExecutionProvider"], ["memoryview"]]
    reason = 'provider "products" failed: RuntimeError: no device'
    assert [(move["reason"], move["to"]) for move in moved] == [(reason, "wasm")]
    assert len(warnings) == 1 and reason in warnings[0]


NODE = """
import { readFileSync, writeFileSync } from 'node:fs';
import { loadPyodide } from 'pyodide';
const [root, models] = process.argv.slice(1);
const pyodide = await loadPyodide({ lockFileURL: `${root}/dist/pyodide-lock.json` });
await pyodide.loadPackage('pyruntime-onnx', { messageCallback: () => {} });
const text = (path) => readFileSync(path, 'utf8');
const files = JSON.parse(text(`${models}/list.json`)).map((name) => [name, readFileSync(`${models}/${name}`)]);
const done = await found(pyodide, text(`${root}/e2e/pages/in_pyodide.py`), text(`${models}/cases.json`), files);
writeFileSync(`${models}/found.json`, done); // a pipe may lose what is written before the exit
console.log(pyodide.runPython("from importlib.metadata import version; version('pyruntime-onnx')"));
process.exit(0);
"""


def test_in_node(models: Path) -> None:
    command = ["node", "--input-type=module", "-e", RUN + NODE, str(ROOT), str(models)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    check(json.loads((models / "found.json").read_text()), models)
    assert done.stdout.strip().splitlines()[-1] == __version__


def test_in_a_worker_in_chromium(models: Path, browser: Browser, tmp_path: Path) -> None:
    check(run_in_worker(browser, tmp_path, models, "in_pyodide.py", (models / "cases.json").read_text()), models)
