"""The provider "auto" in Chromium: the trial on SwiftShader, in which the GPU's time stands still or counts double."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest

from e2e.conftest import Tab
from e2e.test_webgpu_faults import worker

# The time of the GPU does not count (share 0), or counts several times.
CLOCK = """(share) => {
  const now = performance.now.bind(performance);
  const { submit } = GPUQueue.prototype;
  const { mapAsync } = GPUBuffer.prototype;
  let [more, since] = [0, 0];
  performance.now = () => (since ? since + share * (now() - since) : now()) + more;
  GPUQueue.prototype.submit = function (...args) { since ||= now(); return submit.apply(this, args); };
  GPUBuffer.prototype.mapAsync = async function (...args) {
    await mapAsync.apply(this, args);
    if (since) more += (share - 1) * (now() - since);
    since = 0;
  };
}"""
RUN = """
  ort.env.webgpu.forceFallbackAdapter = true; // SwiftShader counts
  const options = { executionProviders: ['auto'], intraOpNumThreads: 1 };
  const session = await ort.InferenceSession.create(Uint8Array.from(arg), options);
  const places = [(await session.explain()).providers];
  const values = new Set();
  const run = async (rows) => {
    const x = new ort.Tensor('float32', new Float32Array(rows * 256).fill(1), [rows, 256]);
    const { s } = await session.run({ x });
    values.add(`${s.dims[0] === rows} ${s.data[2].toFixed(4)}`);
    places.push((await session.explain()).providers);
  };
  for (let n = 0; n < 100 && !/GPU$|GPU failed|visit$/.test(places.at(-1).why); n++) {
    await run(2048);
    await new Promise((done) => setTimeout(done, 100));
  }
  for (const rows of [2048, 3, 700, 2048]) await run(rows); // after the choice
  const kept = async () => (await (await caches.open('pyruntime-choices')).keys()).length;
  for (let n = 0; n < 50 && !await kept(); n++) await new Promise((done) => setTimeout(done, 100));
  await session.release();
  return [places[0], places.at(-1), [...values]];
"""
TEXT = """<ir_version: 9, opset_import: ["" : 17]> g (float[N, 256] x) => (float[N, 1] s)
    <float[1] value = {0.004}> { shape = Constant <value_ints = [256, 256]> () w = Expand (value, shape)
    a = MatMul (x, w) b = Tanh (a) c = MatMul (b, w) s = ReduceMax <axes = [1]> (c) }"""


@pytest.mark.parametrize(("share", "used"), [(0, ["webgpu", "wasm"]), (20, ["wasm"])])
def test_trial(share: int, used: list[str], tab: Callable[..., Tab]) -> None:
    """The session moves to the GPU if that is faster, results stay right, and later visits keep the choice."""
    made = tab()
    page = made.open("/esm.html")
    made.run("await ort.boot()")
    worker(page).evaluate(CLOCK, share)
    model = list(onnx.parser.parse_model(TEXT).SerializeToString())
    found: Any = made.run(RUN, model)
    first, last, values = found
    assert first == {"named": ["auto"], "used": ["wasm"], "why": "auto: runs on WebAssembly are timed"}
    assert last["used"] == used and last["why"].endswith("ms on the GPU") and len(values) == 1
    made.open("/esm.html")
    again: Any = made.run(RUN, model)
    kept = {**last, "why": f"{last['why']}, on an earlier visit"}
    assert again == [kept, kept, values]
