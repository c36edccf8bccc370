"""Training on the GPU in Chromium (SwiftShader): native curves, and faults: a session goes on with the right curve
or refuses work until it has loaded a checkpoint."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from e2e.conftest import Server, Tab, new_tab
from e2e.test_auto_provider import CLOCK
from e2e.test_recovery import INJECTOR
from e2e.test_training import check_halves, check_little_memory
from e2e.test_webgpu_faults import worker
from kit.faults import TABLE, Fault, feed, model
from kit.training_networks import convolutional, deep, digits
from pyruntime import TrainingSession

HELPERS = """
  globalThis.bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  globalThis.floats = (text) => new Float32Array(bytes(text).buffer);
"""
DIGITS = """
  const feeds = arg.batches.map(({ images, labels }) => ({
    image: new ort.Tensor('float32', floats(images), [64, 1, 8, 8]),
    target: new ort.Tensor('uint8', Uint8Array.from(labels), [64]),
  }));
  const curve = async (executionProviders, steps = feeds) => {
    const options = { loss: { crossEntropy: 'logits' }, optimizer: { adam: { rate: 0.01 } }, executionProviders };
    const session = await ort.TrainingSession.create(bytes(arg.model), { ...options, seed: 1 });
    const losses = [];
    for (const batch of steps) losses.push((await session.step(batch)).loss);
    const state = await session.state();
    const wrong = { ...feeds[0], target: new ort.Tensor('uint8', new Uint8Array(64).fill(10), [64]) };
    const error = await session.step(wrong).catch((e) => e.message);
    const isSame = String(await session.state()) === String(state);
    await session.release();
    return { losses, error, isSame };
  };
  return [await curve(['webgpu']), await curve(['webgpu']), await curve(['wasm'])];
"""


def encoded(x: Any) -> str:
    return base64.b64encode(x if isinstance(x, bytes) else np.ascontiguousarray(x).tobytes()).decode()


@pytest.fixture(scope="module")
def gpu_tab(browser: Browser, servers: dict[str, Server]) -> Iterator[Tab]:
    tab = new_tab(browser, servers["isolated"])
    tab.open("/esm.html")
    tab.run("await ort.boot();" + HELPERS)
    worker(tab.page).evaluate(INJECTOR)
    yield tab
    tab.page.context.close()


def test_digits(gpu_tab: Tab) -> None:
    images, labels, _, _ = digits()
    rows = [slice(64 * n, 64 * n + 64) for n in range(20)]
    batches = [{"images": encoded(images[r]), "labels": labels[r].tolist()} for r in rows]
    on_gpu, again, near = gpu_tab.run(DIGITS, {"model": encoded(convolutional()), "batches": batches})  # type: ignore
    options: dict[str, Any] = {"loss": {"cross_entropy": "logits"}, "optimizer": {"adam": {"rate": 0.01}}, "seed": 1}
    with TrainingSession(convolutional(), **options) as session:
        native = [session.step({"image": images[r], "target": labels[r]}).loss for r in rows]
    assert on_gpu == again and native[-1] < native[0] / 2
    for found in (on_gpu, near):
        np.testing.assert_allclose(found["losses"], native, atol=2e-5)
        assert "index 10 is out of range for 10 elements" in found["error"] and found["isSame"]


def test_losses_of_half_floats_are_scaled(gpu_tab: Tab) -> None:
    check_halves(gpu_tab, "webgpu")


def test_little_memory(gpu_tab: Tab) -> None:
    """With running statistics and Dropout, whose masks are the same."""
    check_little_memory(gpu_tab, deep(3, 8, 32, dropout=0.3), 0.75, "webgpu", 1e-5)


FAULT = """
  const session = await ort.TrainingSession.create(bytes(arg.model), {
    loss: { mse: 'y' }, optimizer: { adam: { rate: 1e-3 } }, executionProviders: ['webgpu', 'wasm'],
    gpuTimeout: arg.timeout, extra: { session: { disable_program_cache: '1' } } });
  const x = new ort.Tensor('float32', floats(arg.x), [64, 128]);
  const target = new ort.Tensor('float32', new Float32Array(64 * 128), [64, 128]);
  const losses = [];
  const step = async () => losses.push((await session.step({ x, target })).loss);
  await step(); await step();
  const checkpoint = await session.state();
  Object.assign(globalThis, { session, step, losses, checkpoint });
"""
AFTER = """
  const refusals = [];
  for (let n = 0; n < 3; n++) {
    await step().catch(async (error) => {
      const again = await session.step({}).catch((e) => e.type);
      refusals.push([error.type, error.message, again]);
      await session.load(checkpoint);
      await step();
    });
  }
  await session.release();
  return { losses, refusals };
"""


@pytest.mark.parametrize("fault", [f for f in TABLE if f.when != "creation"], ids=str)
def test_faults(gpu_tab: Tab, fault: Fault) -> None:
    feeds = {"x": feed(64), "target": np.zeros((64, 128), np.float32)}
    with TrainingSession(model(), loss={"mse": "y"}, optimizer={"adam": {"rate": 1e-3}}) as session:
        right = [session.step(feeds).loss for _ in range(5)]
    gpu_tab.run(
        FAULT, {"model": encoded(model()), "x": encoded(feed(64)), "timeout": 4 if fault.kind == "hang" else 60}
    )
    worker(gpu_tab.page).evaluate("(given) => globalThis.inject(...given)", [fault.kind, fault.when, fault.times, 1])
    try:
        found: Any = gpu_tab.run(AFTER)
    finally:
        worker(gpu_tab.page).evaluate("globalThis.heal()")
    np.testing.assert_allclose(found["losses"], right, rtol=1e-4)
    assert all(kind == "SessionFailed" and "load a checkpoint" in text for kind, text, _ in found["refusals"])


AUTO = """
  ort.env.webgpu.forceFallbackAdapter = true; // SwiftShader counts
  const session = await ort.TrainingSession.create(bytes(arg.model), {
    loss: { mse: 'y' }, optimizer: { adam: { rate: 1e-4 } }, executionProviders: ['auto'], intraOpNumThreads: 1 });
  const x = new ort.Tensor('float32', floats(arg.x), [2048, 128]);
  const target = new ort.Tensor('float32', new Float32Array(2048 * 128), [2048, 128]);
  const losses = [];
  const used = async () => (await session.explain()).providers.used[0];
  for (let n = 0; n < 60 && (n < 3 || await used() !== 'webgpu'); n++) {
    losses.push((await session.step({ x, target })).loss);
    await new Promise((done) => setTimeout(done, 100));
  }
  for (let n = 0; n < 3; n++) losses.push((await session.step({ x, target })).loss);
  const place = await used();
  await session.release();
  return { losses, place };
"""


def test_auto_moves_weights_to_the_gpu(tab: Callable[..., Tab]) -> None:
    """The trial runs a copy; when it wins, the session goes on there with its weights."""
    made = tab()
    page = made.open("/esm.html")
    made.run("await ort.boot();" + HELPERS)
    worker(page).evaluate(CLOCK, 0)
    found: Any = made.run(AUTO, {"model": encoded(model()), "x": encoded(feed(2048))})
    feeds = {"x": feed(2048), "target": np.zeros((2048, 128), np.float32)}
    with TrainingSession(model(), loss={"mse": "y"}, optimizer={"adam": {"rate": 1e-4}}) as session:
        right = [session.step(feeds).loss for _ in found["losses"]]
    assert found["place"] == "webgpu" and len(right) < 63
    np.testing.assert_allclose(found["losses"], right, rtol=1e-4)
