"""`ort.quantize` and `ort.quantizeStatic`: a page makes the models of Python's functions, byte by byte, with the same
report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper, parser
from playwright.sync_api import Browser

from e2e.conftest import Tab, new_tab
from kit.chromium import MOUNTS
from pyruntime import quantize, quantize_static
from pyruntime.cli.serve import Server

RNG = np.random.default_rng(3)
ROWS = np.asarray(RNG.standard_normal((2, 3, 40)), np.float32)
QUANTIZE = """
  const bytes = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
  const { name, kind, rows, options, file, form } = arg;
  const feeds = rows.map((data) => ({ x: new ort.Tensor('float32', data, [data.length / 40, 40]) }));
  async function* stream() { yield* feeds; }
  const samples = kind === 'stream' ? stream() : feeds;
  const url = `/large/${name}.onnx`;
  const model = { bytes: () => bytes(url), blob: async () => new Blob([await bytes(url)]) }[kind];
  const more = file ? { externalData: [{ path: file, data: await bytes(`/large/${file}`) }] } : {};
  try {
    const given = await model?.() ?? url;
    const made = await (form === 'static' ? ort.quantizeStatic(given, samples, { ...options, ...more })
      : ort.quantize(given, { smallest: 1000, samples, ...options, ...more }));
    const session = await ort.InferenceSession.create(made.model);
    const { y } = await session.run(feeds[0] ?? { x: new ort.Tensor('float32', new Float32Array(120), [3, 40]) });
    await session.release();
    const { sessions } = await ort.stats();
    const hex = Array.from(made.model, (byte) => byte.toString(16).padStart(2, '0'));
    return { model: hex.join(''), report: made.report, y: [...y.data].length, sessions };
  } catch (error) {
    return [error.type, error.message];
  }
"""


def branches() -> ModelProto:
    """Products whose weights differ in how well they fit into few bits, a lookup, and half floats."""
    even = np.asarray(RNG.standard_normal((40, 60)), np.float32)
    uneven = even.copy()
    uneven[::8] *= 30
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[3, 40] x) => (float[3, 60] y) {
      a = MatMul(x, v)  b = MatMul(x, w)  i = Constant<value_ints = [0, 2, 5]> ()  c = Gather(t, i)
      d = Add(a, b)  y = Add(d, c) }"""
    model = parser.parse_model(text)
    weights = {"v": even, "w": uneven, "t": np.asarray(RNG.standard_normal((30, 60)), np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("quantised")
    onnx.save(branches(), made / "inside.onnx")
    onnx.save(branches(), made / "outside.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return made


@pytest.fixture(scope="module")
def tab(built: None, browser: Browser, folder: Path) -> Iterator[Tab]:
    with Server({**MOUNTS, "/large/": folder}) as server:
        tab = new_tab(browser, server)
        tab.open("/esm.html")
        yield tab
        tab.page.context.close()


def asked(
    tab: Tab, name: str = "inside", kind: str = "url", samples: Any = ROWS, file: str = "", form: str = "weights",
    **options: Any,
) -> Any:  # fmt: skip
    rows = [rows.reshape(-1).tolist() for rows in samples]
    arg = {"name": name, "kind": kind, "rows": rows, "file": file, "options": options, "form": form}
    return tab.run(QUANTIZE, arg)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "4 bits of an address": ({"bits": 4}, {}),
    "8 bits of bytes": ({"bits": 8, "keep": ["a"]}, {"kind": "bytes"}),
    "half floats of a Blob": ({"bits": 16}, {"kind": "blob"}),
    "a stream of samples": ({"bits": 4, "accuracy_level": 4, "block_size": 16}, {"kind": "stream"}),
    "no samples": ({"bits": 4}, {"samples": []}),
    "a bound": ({"bits": 4, "max_error": 0.03}, {}),
    "external data beside the model": ({"bits": 4}, {"name": "outside"}),
    "external data of bytes": ({"bits": 8}, {"name": "outside", "kind": "bytes", "file": "w.bin"}),
    "static": ({}, {"form": "static", "name": "outside"}),
    "static, percentile": ({"calibration": "percentile", "percentile": 99.5}, {"form": "static", "kind": "stream"}),
    "static, entropy": ({"calibration": "entropy", "keep": ["b"]}, {"form": "static", "kind": "bytes"}),
    "static, trainable": ({"trainable": True}, {"form": "static"}),
}
NAMES = {"max_error": "maxError", "block_size": "blockSize", "accuracy_level": "accuracyLevel"}


@pytest.mark.parametrize("case", CASES)
def test_the_same_model_and_report(tab: Tab, folder: Path, case: str) -> None:
    options, how = CASES[case]
    samples = how.get("samples", ROWS)
    path, feeds = folder / f"{how.get('name', 'inside')}.onnx", [{"x": rows} for rows in samples]
    if how.get("form") == "static":
        native = quantize_static(path, feeds, **options)
    else:
        native = quantize(path, smallest=1000, samples=feeds, **options)
    found = asked(tab, **how, **{NAMES.get(name, name): value for name, value in options.items()})
    assert isinstance(found, dict), found
    assert bytes.fromhex(found["model"]) == native.to_bytes()
    assert found["report"]["errors"] == pytest.approx(native.errors, rel=1e-3)
    for ours, layer in zip(found["report"]["layers"], native.layers, strict=True):
        theirs = {**asdict(layer), "shape": list(layer.shape)}
        expected = theirs.pop("error")
        error = ours.pop("error")
        assert ours == theirs
        assert error is None if expected is None else error == pytest.approx(expected, rel=1e-3)
    assert found["y"] == 180 and found["sessions"] == 0
    tab.check()


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "bits": ({"bits": 3}, "InvalidInput", "bits is 3"),
    "a text": ({"smallest": "many"}, "InvalidInput", "smallest is 'many'"),
    "a pattern": ({"keep": ["head*"]}, "InvalidInput", 'no layer has a name like "head*"'),
    "no samples": ({"maxError": 0.1, "samples": []}, "InvalidInput", "max_error needs samples"),
    "samples": ({}, "InvalidInput", "samples must be an array"),
    "a calibration": ({"form": "static", "calibration": "mean"}, "InvalidInput", "range, percentile, entropy"),
    "a percentile": ({"form": "static", "percentile": "99"}, "InvalidInput", "percentile is '99'"),
    "no samples for ranges": ({"form": "static", "samples": []}, "InvalidInput", "needs samples"),
    "NaN": ({"form": "static", "samples": ROWS * np.float32(np.nan)}, "InvalidInput", '"x" has numbers that are not'),
    "an option": ({"form": "static", "bits": 4}, "InvalidInput", "bits"),
    "feeds": ({"samples": [ROWS[0, :2]]}, "InvalidInput", "x"),
    "bytes without their external data": (
        {"name": "outside", "kind": "bytes"},
        "InvalidModel",
        'external data "w.bin"',
    ),
    "no model": ({"name": "../esm"}, "InvalidModel", ""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tab: Tab, case: str) -> None:
    options, kind, text = REFUSED[case]
    if case == "samples":
        found = tab.run(
            "return ort.quantize('/large/inside.onnx', { samples: 5 }).catch((error) => [error.type, error.message])"
        )
    else:
        found = asked(tab, **options)
    assert isinstance(found, list) and found[0] == kind and text in found[1], found
    assert tab.run("return (await ort.stats()).sessions") == 0
    tab.forgive("404")
    tab.check()


def test_it_can_be_stopped(tab: Tab) -> None:
    script = """
      const controller = new AbortController();
      async function* samples() {
        controller.abort();
        yield { x: new ort.Tensor('float32', new Float32Array(120), [3, 40]) };
      }
      const options = { smallest: 1000, samples: samples(), signal: controller.signal };
      return ort.quantize('/large/inside.onnx', options).catch((error) => error.type);
    """
    assert tab.run(script) == "Terminated"
    assert tab.run("return (await ort.stats()).sessions") == 0
    tab.check()
