"""`metrics()` agrees with what a driver counted, by the table of kit/run_counts.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import pyruntime
from kit.run_counts import TABLE, Row
from pyruntime import InferenceSession, PyRuntimeError, RunOptions
from pyruntime.runtime.metrics import RECENT, EngineCounts, RunCounts
from pyruntime.session.events import delivered

TEXT = """<ir_version: 9, opset_import: ["" : 17]> g (float[N, 3] x) => (float[N, 2] y)
    <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { h = MatMul (x, w)  y = Relu (h) }"""
MODEL = onnx.parser.parse_model(TEXT).SerializeToString()


def take(session: InferenceSession, step: str) -> None:
    kind, _, rows = step.partition(" ")
    options = RunOptions()
    options.terminate = kind == "stop"
    feeds = {"x": np.ones((int(rows or 1), 3), np.float64 if kind == "refuse" else np.float32)}
    if kind == "lose":
        session._native.latest().gpu.host.device.destroy()
    elif kind == "release":
        session._native.release()
    else:
        try:
            session.run(None, feeds, options)
        except PyRuntimeError:
            pass


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_metrics_agree_with_the_driver(row: Row) -> None:
    if row.on_gpu:
        pytest.importorskip("wgpu")
    heard: list[Any] = []
    end = pyruntime.on("session", heard.append)
    session = InferenceSession(MODEL, providers=["webgpu" if row.on_gpu else "wasm"])
    for step in row.steps:
        take(session, step)
    delivered()
    end()
    row.check(dict(session.metrics()), heard, session.id, session.state)


def test_runs_that_wait_are_counted() -> None:
    session = InferenceSession(MODEL)
    queue = session._native._queue
    go, begun = threading.Event(), threading.Event()
    threads = [threading.Thread(target=queue.exclusive, args=(lambda: (begun.set(), go.wait()),))]
    threads += [threading.Thread(target=take, args=(session, "run 1")) for _ in range(3)]
    threads[0].start()
    begun.wait()
    for thread in threads[1:]:
        thread.start()
    until(lambda: session.metrics()["waiting"] == 3)
    go.set()
    for thread in threads:
        thread.join()
    assert (session.metrics()["waiting"], session.metrics()["runs"]) == (0, 3)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_quantiles_are_of_the_latest_runs_and_the_maximum_of_all() -> None:
    counts, engine = RunCounts(), EngineCounts(0, 0, 0, 0, 0, 0)
    assert counts.report(engine)["milliseconds"] == {"p50": 0, "p95": 0, "max": 0}
    for n in [9000, *range(1, RECENT + 1)]:
        if counts.succeed(float(n)):
            counts.settle()
    found = counts.report(engine)
    ordered = np.percentile(np.arange(1, RECENT + 1), [50, 95], method="inverted_cdf")
    assert [*found["milliseconds"].values()] == [*ordered, 9000] and found["runs"] == RECENT + 1


def test_threads_lose_no_run() -> None:
    session = InferenceSession(MODEL)
    threads = [threading.Thread(target=lambda: [take(session, "run 1") for _ in range(700)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    plans = session.metrics()["plans"]
    assert (session.metrics()["runs"], plans["made"] + plans["found"]) == (2800, 2800)
