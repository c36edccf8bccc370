"""The places where the rounds of a soak run, natively and in pages of Chromium, with the memory of each."""

from __future__ import annotations

import base64
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx

from bench import growth
from kit import small_models as models
from kit.chromium import BrowserError, Engine
from pyruntime import InferenceSession, PyRuntimeError, RunOptions, SessionOptions, set_memory_limit, stats
from pyruntime.providers.wasm import wasmtime_host

ADD = models.add().SerializeToString()
LOOP = """<ir_version: 10, opset_import: ["" : 20]> g (float[N] x, int64 most) => (float[N] y) {
  y = Loop (most, , x) <body = b (int64 i, bool c, float[N] v) => (bool d, float[N] w) {
    d = Identity (c)  w = Sin (v)
  }>
}"""
ENDLESS = onnx.parser.parse_model(LOOP).SerializeToString()
STOPPED = 0.3  # seconds after its start
TURNS = 5  # of a tensor that stays on the GPU
Measures = dict[tuple[str, str], float]  # by name and unit (growth.py)


class Driven:
    """A session whose runs are counted here, too."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.runs = self.failed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def run(self, *args: Any, **options: Any) -> list[Any]:
        self.runs += 1
        try:
            return list(self.session.run(*args, **options))
        except Exception:
            self.failed += 1
            raise

    def repeat(self, feeds: Any, count: int) -> list[float]:
        self.runs += count
        return list(self.session.repeat(feeds, count))

    def check(self) -> None:
        """Errors: AssertionError if the session has counted otherwise"""
        found = self.session.metrics()
        assert (found["runs"], found["failed"] + found["stopped"]) == (self.runs, self.failed), found


class Native:
    """This process. ways: (threads, whether on the GPU)."""

    name = "native"
    refused = PyRuntimeError

    def __init__(self, gpu: bool) -> None:
        self.gpu = gpu
        self.ways = [(1, False), (2, False), *[(1, True)] * gpu]

    @contextmanager
    def open(self, model: bytes, threads: int = 1, gpu: bool = False, limit: int = 1 << 32) -> Iterator[Driven]:
        """limit: bytes of memory."""
        options = SessionOptions(intra_op_num_threads=threads, memory_limit=limit)
        driven = Driven(InferenceSession(model, options, providers=["webgpu"] if gpu else ["wasm"]))
        yield driven
        driven.check()

    def kind(self, error: Any) -> str:
        """Return the name of the error's type."""
        return type(error).__name__

    def repeat(self, session: Driven, feeds: Any, count: int) -> list[float]:
        """Return the milliseconds of each run."""
        times = []
        for _ in range(count):
            start = time.perf_counter()
            session.run(None, feeds)
            times.append(1e3 * (time.perf_counter() - start))
        return times

    def stopped(self, threads: int) -> str:
        """The type of the error of a run without an end that is stopped after a moment; then the session runs."""
        with self.open(ENDLESS, threads) as session:
            options = RunOptions()
            timer = threading.Timer(STOPPED, setattr, (options, "terminate", True))
            timer.start()
            try:
                session.run(None, {"x": np.ones(4, np.float32), "most": np.array(2**60)}, options)
            except PyRuntimeError as error:
                timer.join()
                session.run(None, {"x": np.ones(4, np.float32), "most": np.array(3)})
                return self.kind(error)
            return ""

    def stay_on_gpu(self) -> float:
        """2 + 1 + 1 …, of tensors that stay on the GPU for TURNS runs."""
        with self.open(ADD, gpu=True) as session:
            one, c = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)
            for _ in range(TURNS):
                (c,) = session.run(["c"], {"a": c, "b": one}, preferred_output_location="gpu-buffer")
            return float(c.get_data()[1, 2])  # type: ignore[attr-defined]

    @contextmanager
    def limited(self, size: int) -> Iterator[None]:
        """All sessions together have this many bytes of linear memory."""
        set_memory_limit(size)
        try:
            yield
        finally:
            set_memory_limit(None)

    def drop(self, model: bytes, feeds: Any, count: int) -> int:
        """Sessions that nobody releases; returns how many of them were counted as dropped."""
        gc.collect()
        before = stats().dropped_sessions
        for _ in range(count):
            InferenceSession(model, SessionOptions(intra_op_num_threads=2)).run(None, feeds)
        gc.collect()
        return stats().dropped_sessions - before

    def come_and_go(self) -> None:
        """Does nothing: the native place has no tabs."""

    def measure(self) -> Measures:
        gc.collect()
        found = {("rss", growth.MEGABYTES): growth.resident("self"), ("hosts", ""): float(len(wasmtime_host._hosts))}
        found |= {(what, ""): float(count) for what, count in growth.own().items()}
        if self.gpu:
            from pyruntime.providers.webgpu.wgpu_device import shared_device

            found["tensors", growth.MEGABYTES] = shared_device().tensor_bytes / 1e6
        return found


STOP = """async ([bytes, threads, seconds]) => {
  const session = await ort.InferenceSession.create(Uint8Array.fromBase64(bytes), { intraOpNumThreads: threads });
  const x = new ort.Tensor('float32', new Float32Array(4).fill(1), [4]);
  const run = (most, signal) => session.run({ x, most: new ort.Tensor('int64', [most], []) }, { signal });
  const type = await run(2n ** 60n, AbortSignal.timeout(1000 * seconds)).then(() => '', (error) => error.type);
  await run(3n);
  await session.release();
  return type;
}"""
GPU_TENSORS = """async ([bytes, turns]) => {
  const options = { executionProviders: ['webgpu'], preferredOutputLocation: 'gpu-buffer' };
  const session = await ort.InferenceSession.create(Uint8Array.fromBase64(bytes), options);
  const tensor = (k) => new ort.Tensor('float32', new Float32Array(6).fill(k), [2, 3]);
  let c = tensor(2);
  for (let i = 0; i < turns; i++) {
    const next = await session.run({ a: c, b: tensor(1) });
    if (c.location === 'gpu-buffer') c.dispose();
    next.d.dispose();
    c = next.c;
  }
  const found = (await c.getData(true))[5];
  await session.release();
  return found;
}"""
DROP = """async ([bytes, count]) => {
  const { droppedSessions: before } = await ort.stats();
  const x = new ort.Tensor('float32', new Float32Array(8).fill(1), [2, 4]);
  const model = Uint8Array.fromBase64(bytes);
  const use = async () => (await ort.InferenceSession.create(model, { intraOpNumThreads: 2 })).run({ x });
  for (let k = 0; k < count; k++) await use();
  for (let n = 0; n < 100; n++) {
    gc();
    await new Promise((resolve) => setTimeout(resolve, 20));
    const { droppedSessions } = await ort.stats();
    if (droppedSessions >= before + count) return droppedSessions - before;
  }
  return 0;
}"""
# in the worker: counts buffers on the GPU
COUNT_BUFFERS = """() => {
  const { createBuffer } = GPUDevice.prototype;
  const { destroy } = GPUBuffer.prototype;
  const held = new Set();
  GPUDevice.prototype.createBuffer = function (descriptor) {
    const buffer = createBuffer.call(this, descriptor);
    held.add(buffer);
    return buffer;
  };
  GPUBuffer.prototype.destroy = function () { held.delete(this); destroy.call(this); };
  globalThis.held = () => [held.size, [...held].reduce((sum, { size }) => sum + size, 0)];
}"""


class Page:
    """A page of Chromium that stays open while other tabs open and close."""

    refused = BrowserError

    def __init__(self, context: Any, origin: str, isolated: bool) -> None:
        self.context, self.origin = context, origin
        self.name = "isolated page" if isolated else "plain page"
        self.ways = [(1, False), *[(2, False)] * isolated, (1, True)]
        self.engine = Engine(context.new_page(), origin)
        self.devtools = context.new_cdp_session(self.engine.page)
        self.engine.boot()
        self.worker.evaluate(COUNT_BUFFERS)

    @property
    def worker(self) -> Any:
        return next(w for w in self.engine.page.workers if "worker.mjs" in w.url)

    @contextmanager
    def open(self, model: bytes, threads: int = 1, gpu: bool = False, limit: int = 1 << 32) -> Iterator[Driven]:
        options = {"executionProviders": ["webgpu"] if gpu else ["wasm"], "intraOpNumThreads": threads}
        driven = Driven(self.engine.open(model, **options, memoryLimit=limit))
        try:
            yield driven
            driven.check()
        finally:
            driven.release()

    def kind(self, error: Any) -> str:
        return str(error.kind)

    def repeat(self, session: Driven, feeds: Any, count: int) -> list[float]:
        return list(session.repeat(feeds, count))

    def stopped(self, threads: int) -> str:
        return str(self.engine.page.evaluate(STOP, [base64.b64encode(ENDLESS).decode(), threads, STOPPED]))

    def stay_on_gpu(self) -> float:
        return float(self.engine.page.evaluate(GPU_TENSORS, [base64.b64encode(ADD).decode(), TURNS]))

    @contextmanager
    def limited(self, size: int) -> Iterator[None]:
        self.engine.page.evaluate("(size) => { ort.env.memoryLimit = size; }", size)
        try:
            yield
        finally:
            self.engine.page.evaluate("() => { ort.env.memoryLimit = undefined; }")

    def drop(self, model: bytes, feeds: Any, count: int) -> int:
        return int(self.engine.page.evaluate(DROP, [base64.b64encode(model).decode(), count]))

    def come_and_go(self) -> None:
        """Close a tab that has a session; in another tab, end and restart the worker."""
        tab = Engine(self.context.new_page(), self.origin)
        x = np.ones((2, 4), np.float32)
        model = models.affine().SerializeToString()
        tab.open(model).run(None, {"x": x})
        tab.page.evaluate("() => ort.shutdown()")
        tab.open(model).run(None, {"x": x})
        tab.page.close()

    def measure(self) -> Measures:
        self.devtools.send("HeapProfiler.collectGarbage")
        stats = self.engine.page.evaluate("() => ort.stats()")
        count, size = self.worker.evaluate("() => globalThis.held?.() ?? [0, 0]")  # or a new worker
        megabytes = {
            "page heap": self.devtools.send("Runtime.getHeapUsage")["usedSize"],
            "python heap": stats["heap"],
            "linear memory": stats["arenas"],
            "gpu": size,
        }
        counts = {name: stats[name] for name in ("sessions", "tensors", "threads", "teams")}
        counts |= {"gpu buffers": count, "workers": len(self.engine.page.workers), "tabs": len(self.context.pages)}
        found = {(name, growth.MEGABYTES): value / 1e6 for name, value in megabytes.items()}
        return found | {(name, growth.COUNT): float(value) for name, value in counts.items()}


Seat = Native | Page
