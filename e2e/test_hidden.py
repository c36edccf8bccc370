"""A page whose tab is hidden: browsers let its timers wait for a second and more. Sessions are made, run and stopped as
in any other."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from e2e.conftest import Server
from kit import browsers
from kit.chromium import chromium_path

SOON = 5000  # milliseconds; a moment where nothing else is at work
# The argument: whether there is WebGPU.
RUNS = """async (gpu) => {
  const { InferenceSession, Tensor } = ort;
  const x = new Tensor('float32', new Float32Array(512 * 1024).fill(1), [512, 1024]);
  const found = [document.visibilityState];
  for (const providers of gpu ? [['wasm'], ['webgpu']] : [['wasm']]) {
    const options = { intraOpNumThreads: 2, executionProviders: providers };
    const session = await InferenceSession.create('/models/steps.onnx', options);
    const all = await Promise.all(Array.from({ length: 60 }, () => session.run({ x }))); // threads join after fifty
    const controller = new AbortController();
    const many = Array.from({ length: 40 }, () => session.run({ x }, { signal: controller.signal }));
    const start = performance.now();
    controller.abort();
    const names = await Promise.all(many.map((run) => run.then(() => 'done', (error) => error.name)));
    const took = performance.now() - start;
    const { s } = await session.run({ x });
    found.push([all.every(({ s }) => Math.abs(s.data[5] - 1.7615942) < 1e-5), names.at(-1), took, s.data[5]]);
    await session.release();
  }
  return found;
}"""
RESTS = """async () => {
  const { InferenceSession, Tensor } = ort;
  const x = new Tensor('float32', new Float32Array(512 * 1024).fill(1), [512, 1024]);
  const session = await InferenceSession.create('/models/steps.onnx', { preset: 'power' });
  const controller = new AbortController();
  const run = session.run({ x }, { signal: controller.signal }).then(() => 'done', (error) => error.name);
  const first = await Promise.race([run, new Promise((resolve) => setTimeout(resolve, 1000, 'rests'))]);
  controller.abort();
  return [first, await run];
}"""


@pytest.mark.parametrize(("name", "kind"), [("Chromium", "isolated"), ("Firefox", "plain")])
def test_runs(name: str, kind: str, browser: Browser, servers: dict[str, Server]) -> None:
    if name == "Firefox" and browsers.firefox_path() is None:
        pytest.skip("not installed; scripts/setup.sh browsers does it as root")
    chromium = chromium_path() or browser.browser_type.executable_path
    with browsers.firefox() if name == "Firefox" else browsers.chromium(chromium) as page:
        page.goto(f"{servers[kind].url}/esm.html")
        page.wait_for_function("globalThis.ort")
        page.hide()
        gpu = page.evaluate("async () => Boolean(await navigator.gpu?.requestAdapter())")
        visible, *found = page.evaluate(RUNS, gpu)
        assert page.evaluate(RESTS) == ["rests", "AbortError"]
    assert visible == "hidden"
    for right, stopped, took, after in found:
        assert right and stopped == "AbortError" and took < SOON
        assert after == pytest.approx(1.7615942)
