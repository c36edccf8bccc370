"""Programs that Python exported: sessions without Python, without compiling."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from e2e.conftest import Tab
from e2e.test_loading import RUN, X, Y, assert_affine
from kit import small_models as models
from kit.chromium import ROOT
from pyruntime import InferenceSession, SessionOptions
from pyruntime.program.format import Program

MODELS = ROOT / "build" / "models"
HOST = """<ir_version: 10, opset_import: ["" : 20]>
  g (string[N] x) => (bool[N] y) { y = RegexFullMatch <pattern = "a+"> (x) }"""


@pytest.fixture(scope="module")
def programs(built: None) -> Path:
    """In build/models, beside their models. Each file appears whole: another process of tests may write it as well."""
    affine = InferenceSession(MODELS / "affine.onnx")
    two = InferenceSession(MODELS / "affine.onnx", SessionOptions(intra_op_num_threads=2))
    files = {
        "whole.pyrt": affine.export(weights=True),
        "beside.pyrt": affine.export(),
        "external.pyrt": InferenceSession(MODELS / "external.onnx").export(),
        "threads.pyrt": two.export(weights=True),
        "other.pyrt": b"pyrt\x09" + affine.export(weights=True)[5:],
        "cut.pyrt": affine.export(weights=True)[:-4],
        "short.pyrt": b"pyrt",
        "odd.pyrt": renamed(affine.export(), "odd #1?.onnx"),
        "odd #1?.onnx": (MODELS / "affine.onnx").read_bytes(),
        "lost.pyrt": renamed(affine.export(), "lost.onnx"),
        "changed.pyrt": renamed(affine.export(), "external.onnx"),
        "away.pyrt": moved(InferenceSession(MODELS / "external.onnx").export()),
        "away.bin": (MODELS / "external.bin").read_bytes()[:-1],
        "host.pyrt": InferenceSession(onnx.parser.parse_model(HOST).SerializeToString()).export(weights=True),
        "no.pyrt": (MODELS / "affine.onnx").read_bytes(),
    }
    for name, data in files.items():
        new = MODELS / f"{name}.{os.getpid()}"
        new.write_bytes(data)
        new.replace(MODELS / name)
    return MODELS


def changed(program: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A program with another header."""
    found = Program.from_bytes(program)
    change(found.header)
    return found.to_bytes()


def renamed(program: bytes, model: str) -> bytes:
    """A program whose weights are in another file."""
    return changed(program, lambda header: header["model"].update(file=model))


def moved(program: bytes) -> bytes:
    """A program whose external data is in away.bin."""

    def move(header: dict[str, Any]) -> None:
        for constant in header["constants"]:
            if constant.get("source"):
                constant["source"] = "away.bin"

    return changed(program, move)


def of_python(tab: Tab) -> list[str]:
    return [url for url in tab.requests if "pyodide" in url or url.endswith(".zip")]


WAYS = {
    "with its weights": "'/models/whole.pyrt'",
    "beside its model": "'/models/beside.pyrt'",
    "beside a model with an odd name": "'/models/odd.pyrt'",
    "at an address with more": "'/models/beside.pyrt?version=2#top'",
    "beside external data": "'/models/external.pyrt'",
    "for two threads": "'/models/threads.pyrt'",
    "bytes": "await file('whole')",
    "bytes, and the model's": "await file('beside'), { externalData: [{ path: 'affine.onnx', data: MODEL }] }",
}
FILE = """
  const MODEL = '/models/affine.onnx';
  const file = async (name) => new Uint8Array(await (await fetch(`/models/${name}.pyrt`)).arrayBuffer());
"""


@pytest.mark.parametrize("kind", ["isolated", "plain", "strict"])
def test_programs_run_without_python(programs: Path, tab: Callable[..., Tab], kind: str) -> None:
    made = tab(kind)
    made.open("/esm.html")
    for way in WAYS.values():
        assert_affine(made.run(f"{FILE} const session = await ort.InferenceSession.create({way}); {RUN}"))
    stats = made.run("return ort.stats()")
    assert isinstance(stats, dict) and stats["heap"] == 0 and stats["sessions"] == 0
    assert not of_python(made)


def test_no_more_threads_than_it_was_exported_for(programs: Path, tab: Callable[..., Tab]) -> None:
    """Scratch of the others would be somebody else's memory."""
    made = tab()
    made.open("/esm.html")
    run = "await ort.InferenceSession.create(arg, { intraOpNumThreads: 4 }); return (await ort.stats()).threads"
    assert made.run(run, "/models/whole.pyrt") == 0
    assert made.run(run, "/models/threads.pyrt") == 1  # besides the worker


def test_any_dims_and_reports(programs: Path, tab: Callable[..., Tab]) -> None:
    """Shapes are free as far as the model says; in the page, too, once runs are known to be short."""
    made = tab()
    made.open("/esm.html")
    found = made.run(
        """
        const session = await ort.InferenceSession.create('/models/whole.pyrt', { intraOpNumThreads: 1 });
        const ones = (count) => new Float32Array(count).fill(1);
        const feed = (rows, columns) => ({ x: new ort.Tensor('float32', ones(rows * columns), [rows, columns]) });
        const results = [];
        for (const rows of [1, 2, 3, 0]) results.push([rows, Array.from((await session.run(feed(rows, 4))).y.data)]);
        const refused = await session.run(feed(2, 5)).catch((error) => error.type);
        let page = 0;
        for (let i = 0; i < 50 && !page; i++) {
          await new Promise((resolve) => setTimeout(resolve, 20)); // meanwhile the page fetches the executor
          await session.run(feed(2, 4));
          page = (await session.memory()).page;
        }
        const last = Array.from((await session.run(feed(2, 4))).y.data);
        const verified = await session.verify(feed(1, 4)).catch((error) => error.type);
        const { placement } = await session.explain();
        const calls = (await session.profile(feed(1, 4))).length;
        return { results, refused, page, last, verified, placement, calls, inputs: session.inputMetadata };
        """
    )
    assert isinstance(found, dict)
    for rows, y in found["results"]:
        np.testing.assert_allclose(y, expected(rows), rtol=1e-5)
    np.testing.assert_allclose(found["last"], expected(2), rtol=1e-5)
    assert (found["refused"], found["verified"]) == ("InvalidInput", "InvalidInput")
    assert found["page"] > 0 and found["calls"] > 0 and found["placement"]["wasm"] > 0
    assert found["inputs"][0]["name"] == "x"
    assert not of_python(made)


def expected(rows: int) -> list[float]:
    y = np.maximum(np.ones((rows, 4), np.float32) @ models.WEIGHT + models.BIAS, 0)
    return [float(value) for value in y.ravel()]


REFUSED = {
    "other": ("InvalidModel", "format 9"),
    "cut": ("InvalidModel", "cut off"),
    "short": ("InvalidModel", "cut off"),
    "lost": ("InvalidModel", "lost.onnx"),
    "changed": ("InvalidModel", "is not the file that this program needs"),
    "away": ("InvalidModel", 'external data "away.bin" is cut off'),
    "host": ("UnsupportedOp", "RegexFullMatch"),
}


def test_another_output_is_refused(programs: Path, tab: Callable[..., Tab]) -> None:
    """Of a model it would make another Program; there has to be such an output."""
    made = tab()
    made.open("/esm.html")
    create = "return ort.InferenceSession.create(arg, { sampleFrom: 'z' }).catch((error) => error.message)"
    assert "cannot change a compiled Program" in str(made.run(create, "/models/whole.pyrt"))
    assert 'output "z" does not exist' in str(made.run(create, "/models/affine.onnx"))


def test_what_cannot_run_is_refused(programs: Path, tab: Callable[..., Tab]) -> None:
    made = tab()
    made.open("/esm.html")
    told = "const told = (error) => [error.type, error.message];"
    for name, (kind, text) in REFUSED.items():
        found = made.run(f"{told} return ort.InferenceSession.create(arg).then(() => [], told)", f"/models/{name}.pyrt")
        assert isinstance(found, list) and found[0] == kind and text in found[1], found
    bare = f"{told} {FILE} return ort.InferenceSession.create(await file('beside')).then(() => [], told)"
    found = made.run(bare)
    assert isinstance(found, list) and found[0] == "InvalidModel" and "externalData" in found[1]
    made.forgive("404")
    assert not of_python(made)


def test_python_starts_where_a_model_needs_it(programs: Path, tab: Callable[..., Tab]) -> None:
    """After a program, and for an ONNX model that is called one."""
    made = tab()
    made.open("/esm.html")
    for name in ("whole.pyrt", "affine.onnx", "no.pyrt", "beside.pyrt"):
        assert_affine(made.run("const session = await ort.InferenceSession.create(arg);" + RUN, f"/models/{name}"))
    assert of_python(made)
    other = tab()
    other.open("/esm.html")
    assert_affine(other.run("const session = await ort.InferenceSession.create('/models/no.pyrt');" + RUN))


def test_page_exports_and_lists(tab: Callable[..., Tab], programs: Path) -> None:
    """What a page exports runs there and natively; a page lists code as Python does."""
    made = tab()
    made.open("/esm.html")
    found: Any = made.run("""
      const model = await ort.InferenceSession.create('/models/affine.onnx');
      const lists = [await model.listing(), await model.listing(null, { node: 'MatMul', code: true })];
      const file = await model.export();
      const opened = await ort.InferenceSession.create(file.slice());
      const why = async (call) => call().then(() => '', (error) => error.message);
      const refused = [await why(() => opened.export()), await why(() => opened.listing())];
      const { y } = await opened.run({ x: new ort.Tensor('float32', [0, 1, 2, 3, 4, 5, 6, 7], [2, 4]) });
      return { file: Array.from(file), lists, refused, y: Array.from(y.data) };
    """)
    np.testing.assert_allclose(np.array(found["y"]).reshape(2, 3), Y, rtol=1e-5)
    np.testing.assert_allclose(InferenceSession(bytes(found["file"])).run(None, {"x": X})[0], Y, rtol=1e-5)
    plain, code = found["lists"]
    assert "MatMul" in plain and "(func $" in code and "(func $" not in plain
    assert ["a file already" in found["refused"][0], "no kernels to list" in found["refused"][1]] == [True, True]
