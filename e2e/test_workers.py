"""Sessions in workers of their own, and in one worker that all tabs of an origin share."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from playwright.sync_api import Browser, BrowserContext

from e2e.conftest import Tab
from e2e.test_stop import ENDLESS, MODELS, TOOLS, parsed
from kit import small_models
from pyruntime.cli.serve import Server

WIDTH = 1056  # weights of 4.5 MB: smaller models are not shared


def encoded(model: bytes) -> str:
    return base64.b64encode(model).decode()


def product() -> str:
    """y = x @ w: with equal elements of x, as many times WIDTH / 1000 as x has."""
    value = (onnx.TensorProto.FLOAT, [1, WIDTH])
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
    weights = {"w": np.full((WIDTH, WIDTH), 0.001, np.float32)}
    return encoded(small_models.model(nodes, [("x", *value)], [("y", *value)], weights).SerializeToString())


NAMED = """
  const sessions = [];
  for (const worker of [undefined, 'a', 'b', 'b']) {
    sessions.push(await ort.InferenceSession.create('/models/affine.onnx', { worker }));
  }
  const x = new Tensor('float32', [1, 2, 3, 4], [1, 4]);
  const results = await Promise.all(sessions.map(async (session) => [...(await session.run({ x })).y.data]));
  const { sessions: count, heap } = await ort.stats();

  const long = await open(arg.endless, { worker: 'b', intraOpNumThreads: 1 });
  const stop = new AbortController();
  let isRunning = true;
  const running = told(long.run({ x: square(arg.n) }, { signal: stop.signal })).finally(() => { isRunning = false; });
  await sleep(100);
  await sessions[1].run({ x }); // in turns it would wait for seconds
  const wasRunning = isRunning;
  stop.abort();
  const { name } = await running;

  const python = async (code, worker) => ort.python(code, null, { worker });
  await python('import sys; sys.seen = 5', 'a');
  const ask = (worker) => python('import sys; getattr(sys, "seen", None)', worker);
  const seen = await Promise.all(['a', 'b'].map(ask));
  const bad = await told(ort.InferenceSession.create('/models/affine.onnx', { worker: 5 }));
  ort.shutdown();
  const gone = await Promise.all(sessions.map((session) => told(session.run({ x }))));
  const again = await ort.InferenceSession.create('/models/affine.onnx', { worker: 'a' });
  const right = [...(await again.run({ x })).y.data];
  return { results, count, heap, wasRunning, name, seen, bad, gone: gone.map((error) => error.message), right };
"""


@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_sessions_in_workers_of_their_own(kind: str, tab: Callable[..., Tab]) -> None:
    made = tab(kind)
    made.open("/esm.html")
    endless = encoded(parsed(MODELS["a product"]))
    found: Any = made.run(TOOLS + NAMED, {"endless": endless, "n": ENDLESS["a product"]})
    expected = np.maximum(np.arange(1, 5, dtype=np.float32) @ small_models.WEIGHT + small_models.BIAS, 0)
    for result in (*found["results"], found["right"]):
        np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert found["count"] == 4 and found["wasRunning"] and found["name"] == "AbortError"
    assert found["seen"] == [5, None] and "worker" in found["bad"]["message"]
    assert all("it was shut down" in message for message in found["gone"]), found["gone"]


LIMIT = """
  ort.env.wasm.proxy = true;
  const x = new Tensor('float32', new Float32Array(arg.width), [1, arg.width]);
  const create = (worker) => open(arg.model, { worker, intraOpNumThreads: 1 });
  const first = await create('a');
  await first.run({ x });
  const { arenas } = await ort.stats();
  ort.env.memoryLimit = Math.round(1.5 * arenas);
  const refused = await told(create('b'));
  await first.release();
  const second = await create('b'); // what another worker has freed can be used
  await second.run({ x });
  ort.env.memoryLimit = undefined;
  return [refused.message, arenas];
"""


def test_limits_hold_for_all_workers(tab: Callable[..., Tab]) -> None:
    page = tab()
    page.open("/esm.html")
    model = product()
    refused, arenas = page.run(TOOLS + LIMIT, {"model": model, "width": WIDTH})  # type: ignore[misc]
    assert "env.memoryLimit" in refused and arenas > 4 * WIDTH * WIDTH


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    made.set_default_timeout(60_000)
    yield made
    made.close()


OPEN = """
  ort.env.wasm.proxy = false;
  globalThis.session = await open(arg.model, { worker: 'shared' });
  globalThis.x = new Tensor('float32', new Float32Array(arg.width).fill(arg.value), [1, arg.width]);
  let y;
  for (let k = 0; k < 8; k++) ({ y } = await session.run({ x }));
  const { page } = await session.memory();
  return [y.data[0], page];
"""
MEMORY = """
  const shared = new Float32Array(crossOriginIsolated ? new SharedArrayBuffer(4 * arg.width) : arg.width).fill(2);
  const into = { y: new Tensor('float32', new Float32Array(shared), [1, arg.width]) };
  if (crossOriginIsolated) {
    into.y = new Tensor('float32', new Float32Array(new SharedArrayBuffer(4 * arg.width)), [1, arg.width]);
  }
  const { y } = await session.run({ x: new Tensor('float32', shared, [1, arg.width]) }, into);
  const file = bytes(arg.model);
  const held = new Uint8Array(crossOriginIsolated ? new SharedArrayBuffer(file.length) : file.length);
  held.set(file);
  const other = await ort.InferenceSession.create(held, { worker: 'shared' });
  await other.run({ x });
  await other.release();
  return [y === into.y && y.data[0]];
"""
LONG = """
  const long = await open(arg.endless, { worker: 'shared' });
  void long.run({ x: square(arg.n) });
"""
USE = "const { y } = await session.run({ x }); return y.data[0];"
STATS = "const { sessions, arenas, heap } = await ort.stats(); return { sessions, arenas, heap };"


def until(page: Tab, sessions: int) -> dict[str, int]:
    """What the worker holds, once it has this many sessions."""
    end = time.monotonic() + 30
    while True:
        found: Any = page.run(STATS)
        if found["sessions"] == sessions or time.monotonic() > end:
            assert found["sessions"] == sessions, found
            return found


@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_one_worker_for_all_tabs(kind: str, context: BrowserContext, servers: dict[str, Server]) -> None:
    """One model in memory for four tabs; a tab that closes frees its sessions, even in the middle of a run."""
    model = product()
    arg = {"model": model, "width": WIDTH, "endless": encoded(parsed(MODELS["a loop of many steps"])), "n": 64}
    tabs = [Tab(context.new_page(), servers[kind].url) for _ in range(4)]
    one, held = WIDTH / 1000, []
    for value, tab in enumerate(tabs, 1):
        tab.open("/esm.html")
        result, in_page = tab.run(TOOLS + OPEN, {**arg, "value": value})  # type: ignore[misc]
        assert result == pytest.approx(value * one, rel=1e-4) and in_page == 0
        assert not tab.page.workers
        held.append(until(tab, value))
    assert len({found["heap"] for found in held}) == 1 and held[-1]["arenas"] < 1.5 * held[0]["arenas"]
    assert tabs[1].run(TOOLS + MEMORY, arg) == [pytest.approx(2 * one, rel=1e-4)]
    tabs[0].run("await session.release()")
    until(tabs[1], 3)
    tabs[1].page.close()
    assert tabs[2].run(USE) == pytest.approx(3 * one, rel=1e-4)
    until(tabs[2], 2)
    tabs[3].run(TOOLS + LONG, arg)
    until(tabs[2], 3)
    tabs[3].page.close()
    until(tabs[2], 1)
    assert tabs[2].run(USE) == pytest.approx(3 * one, rel=1e-4)
    tabs[2].run("ort.shutdown()")
    tabs[2].check()
    tabs[2].open("/esm.html")
    result, _ = tabs[2].run(TOOLS + OPEN, {**arg, "value": 1})  # type: ignore[misc]
    assert result == pytest.approx(one, rel=1e-4)
    until(tabs[2], 1)


GPU = """
  const options = { worker: 'shared', executionProviders: ['webgpu'] };
  const session = await ort.InferenceSession.create('/models/affine.onnx', options);
  const { y } = await session.run({ x: new ort.Tensor('float32', [1, 2, 3, 4], [1, 4]) });
  return [[...y.data], (await session.explain()).providers.used];
"""


def test_the_shared_worker_has_the_gpu(context: BrowserContext, servers: dict[str, Server]) -> None:
    tab = Tab(context.new_page(), servers["isolated"].url)
    tab.open("/esm.html")
    result, used = tab.run(GPU)  # type: ignore[misc]
    expected = np.maximum(np.arange(1, 5, dtype=np.float32) @ small_models.WEIGHT + small_models.BIAS, 0)
    np.testing.assert_allclose(result, expected, rtol=1e-4)
    assert used == ["webgpu"]
    tab.check()


def test_where_there_is_no_shared_worker(tab: Callable[..., Tab]) -> None:
    """The page gets one of its own, and a warning."""
    made = tab()
    made.page.add_init_script("delete globalThis.SharedWorker")
    made.open("/esm.html")
    result: Any = made.run(
        TOOLS + OPEN,
        {"model": product(), "width": WIDTH, "value": 1},
    )
    assert np.isfinite(result[0]) and len(made.page.workers) >= 1
    assert ["'shared' is this page's alone" in warning for warning in made.warnings] == [True]
