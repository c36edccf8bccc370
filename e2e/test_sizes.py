"""Sizes that the Program for all sizes refuses, in a page: they get a Program of their own, and others keep theirs."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import onnx

from e2e.conftest import Tab
from e2e.test_webgpu_faults import worker

# Dims of o that are 0 stand for those of x.
RESHAPE = """<ir_version: 9, opset_import: ["" : 18]>
g (float[3,n] x, float[m,4] o) => (float[a,b] y) <int64[1] rest = {-1}> {
    s = Shape <end = 1> (o)  to = Concat <axis = 0> (s, rest)  y = Reshape (x, to)
}"""
SUM = """<ir_version: 9, opset_import: ["" : 18]> g (float[r,n] x) => (float[r,n] y) <int64 last = {1}> {
    y = CumSum (x, last)
}"""
SCRIPT = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const ones = (...dims) => new ort.Tensor('float32', new Float32Array(dims.reduce((a, b) => a * b)).fill(1), dims);
  const session = await ort.InferenceSession.create(bytes(arg.reshape), { executionProviders: ['wasm'] });
  const dims = async (n, m) => (await session.run({ x: ones(3, n), o: ones(m, 4) })).y.dims.join();
  const found = { reshape: [await dims(0, 0), await dims(5, 5), await dims(5, 0)] };
  for (let n = 0; n < 12; n++) await dims(6, 9); // later ones run in the page
  found.reshape.push(await dims(7, 0), await dims(6, 9));
  const options = { executionProviders: ['webgpu'] };
  const gpu = await ort.InferenceSession.create(bytes(arg.sum), options);
  found.sums = [];
  for (const [rows, n] of [[2, 50], [2, 100000], [3, 60]]) {
    const { y } = await gpu.run({ x: ones(rows, n) });
    found.sums.push(y.data.at(-1), Object.keys((await gpu.explain()).placement).join());
  }
  options.fallback = false;
  const strict = await ort.InferenceSession.create(bytes(arg.sum), options);
  found.strict = await strict.run({ x: ones(2, 100000) }).then(() => '', (error) => `${error.type}: ${error.message}`);
  return found;
"""
LLVMPIPE = "Object.defineProperty(GPUAdapterInfo.prototype, 'description', { get: () => 'llvmpipe' })"


def test_sizes_with_programs_of_their_own(tab: Callable[..., Tab]) -> None:
    """Mesa's llvmpipe, as which the adapter presents itself here, stops an invocation after 65,535 loop iterations."""
    page = tab()
    page.open("/esm.html")
    page.run("await ort.boot()")
    worker(page.page).evaluate(LLVMPIPE)
    encode = lambda text: base64.b64encode(onnx.parser.parse_model(text).SerializeToString()).decode()  # noqa: E731
    found: Any = page.run(SCRIPT, {"reshape": encode(RESHAPE), "sum": encode(SUM)})
    assert found["reshape"] == ["3,0", "5,3", "3,5", "3,7", "9,2"]
    assert found["sums"] == [50, "webgpu", 100000, "wasm", 60, "webgpu"]
    assert found["strict"].startswith("UnsupportedOp: ") and "loop iterations" in found["strict"]
