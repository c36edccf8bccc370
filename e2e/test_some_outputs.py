"""Runs that ask for some outputs in a page: feeds that may be missing, the option `outputs`, and a model's metadata."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import onnx

from e2e.conftest import Tab
from kit.probes import PROBES
from kit.side_by_side import side_by_side
from kit.small_models import towers
from pyruntime import InferenceSession

SCRIPT = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const ones = (...dims) => new ort.Tensor('float32', new Float32Array(dims.reduce((a, b) => a * b)).fill(1), dims);
  const numbers = ({ data }) => Array.from(data, Number);
  const found = {};
  for (const [name, model] of Object.entries(arg.models)) {
    const session = await ort.InferenceSession.create(bytes(model), { executionProviders: ['wasm'] });
    const [image, text] = [ones(3, 64), ones(2, 32)];
    const a = await session.run({ image }, ['a']);
    const many = [];
    // Later ones run in the page.
    for (let n = 0; n < 12; n++) many.push(numbers((await session.run({ text }, ['b'])).b));
    const whole = await session.run({ image, text });
    const missing = await session.run({ image }, ['both']).catch((error) => error.message);
    const { metadata } = session;
    const both = [numbers(whole.a), numbers(whole.b)];
    found[name] = { a: numbers(a.a), keys: Object.keys(a), many, whole: both, missing, metadata };
    await session.release();
  }
  const options = { executionProviders: ['wasm'], outputs: ['b'] };
  const alone = await ort.InferenceSession.create(bytes(arg.models.model), options);
  const { b } = await alone.run({ image: ones(3, 64), text: ones(2, 32) });
  found.alone = [alone.inputNames, alone.outputNames, numbers(b)];
  found.refused = await ort.InferenceSession.create(bytes(arg.models.program), options).catch((error) => error.message);
  const parts = await ort.InferenceSession.create(bytes(arg.parts), { executionProviders: ['wasm'] });
  const n = new ort.Tensor('int64', [3n], []);
  found.part = numbers((await parts.run({ 'shape_from_data/n': n }, ['shape_from_data/r']))['shape_from_data/r']);
  found.inspected = (await ort.inspect(bytes(arg.models.model))).metadata;
  return found;
"""


def test_some_outputs(page: Tab) -> None:
    model = onnx.load_from_string(towers())
    model.producer_name, model.model_version = "tests", 7
    model.metadata_props.add(key="labels", value="cat,dog")
    data = model.SerializeToString()
    session = InferenceSession(data)
    parts, _ = side_by_side([PROBES["shape_from_data"], PROBES["if_at_run_time"]])
    text = lambda x: base64.b64encode(x).decode()  # noqa: E731
    models = {"model": text(data), "program": text(session.export(weights=True))}
    found: Any = page.run(SCRIPT, {"models": models, "parts": text(parts)})
    a, b, _ = session.run(None, {"image": np.ones((3, 64), np.float32), "text": np.ones((2, 32), np.float32)})
    for name in models:
        got = found[name]
        assert got["keys"] == ["a"] and got["missing"].startswith('input "text" is missing')
        pairs = [(got["a"], a), *[(each, b) for each in got["many"]], *zip(got["whole"], (a, b), strict=True)]
        for numbers, want in pairs:
            np.testing.assert_allclose(numbers, want.ravel(), rtol=1e-4, atol=1e-4)
        assert got["metadata"]["producerName"] == "tests" and got["metadata"]["version"] == 7
        assert got["metadata"]["customMetadataMap"] == {"labels": "cat,dog"}
        assert got["metadata"]["opsetImports"] == {"": 20}
    assert found["alone"][:2] == [["text"], ["b"]]
    np.testing.assert_allclose(found["alone"][2], b.ravel(), rtol=1e-4, atol=1e-4)
    assert found["refused"].splitlines()[0] == "outputs cannot change a compiled Program"
    assert found["part"] == [0, 1, 2]
    assert found["inspected"] == found["model"]["metadata"]
