"""Events, as programs listen for them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import pyruntime
from pyruntime.session.events import delivered, emit, listeners


def test_listeners_hear_the_events_of_their_name_until_they_end(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []

    def first(event: Any) -> None:
        heard.append((threading.current_thread() is threading.main_thread(), event["n"]))

    def bad(event: Any) -> None:
        raise ValueError(event)

    ends = [pyruntime.on("memory", f) for f in (bad, first, first)]  # a listener counts once
    assert listeners("memory") == [bad, first] and not listeners("session")
    with caplog.at_level(logging.ERROR, "pyruntime"):
        for n in range(3):
            emit("memory", {"n": n})
        emit("session", {"n": 9})
        delivered()
    assert heard == [(False, 0), (False, 1), (False, 2)]
    assert [r.exc_info and r.exc_info[0] for r in caplog.records] == [ValueError] * 3
    for end in ends:
        end()
    emit("memory", {"n": 3})
    delivered()
    assert len(heard) == 3 and not listeners("memory")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_hears_events() -> None:
    heard: list[Any] = []
    end = pyruntime.on("memory", heard.append)
    emit("memory", {"n": 1})
    delivered()
    child = os.fork()
    if not child:
        emit("memory", {"n": 2})
        delivered()
        os._exit(len(heard))
    end()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2 and len(heard) == 1


def test_work_at_the_end_of_the_process_has_events() -> None:
    code = """if True:
        import atexit, pyruntime
        from pyruntime.session.events import emit
        pyruntime.on("memory", lambda event: print(event["n"], flush=True))
        emit("memory", {"n": 1})
        atexit.register(emit, "memory", {"n": 2})
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("1\n2\n", "")


@pytest.mark.parametrize(
    ("name", "listener", "text"), [("memry", print, "one of memory, session"), ("memory", 1, "no function")]
)
def test_what_is_no_event_is_refused(name: str, listener: Any, text: str) -> None:
    with pytest.raises(pyruntime.InvalidInput, match=text):
        pyruntime.on(name, listener)


def test_opentelemetry_gets_spans_below_the_callers_and_metrics() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="a package of the tests that is not installed")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, reader, provider = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    end = pyruntime.export_to_opentelemetry(provider, MeterProvider([reader]))
    session = pyruntime.InferenceSession("demo/digits/digits.onnx")
    with provider.get_tracer("test").start_as_current_span("request") as parent:
        session.run(None, {"image": np.zeros((1, 1, 28, 28), np.float32)})
        with pytest.raises(pyruntime.InvalidInput):
            session.run(None, {})
    for kind in ("step", "batch", "one of a later version"):  # without a duration: no span
        session._native.watch.tell(kind, loss=1.0, step=1)
    delivered()
    end()
    created, good, bad = [s for s in spans.get_finished_spans() if s.name.startswith("pyruntime.")]
    assert [s.name for s in (created, good, bad)] == ["pyruntime.create", "pyruntime.run", "pyruntime.run"]
    assert created.parent is None and good.parent.span_id == bad.parent.span_id == parent.get_span_context().span_id
    assert good.attributes["pyruntime.session.name"] == "digits.onnx"
    assert (good.status.is_ok, bad.status.is_ok) == (True, False) and bad.status.description.startswith("InvalidInput")
    assert parent.start_time <= good.start_time < good.end_time <= bad.end_time
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    counted = {m.name: {p.attributes["pyruntime.outcome"]: p for p in m.data.data_points} for m in scope.metrics}
    assert {k: p.value for k, p in counted["pyruntime.runs"].items()} == {"succeeded": 1, "failed": 1}
    assert counted["pyruntime.run.duration"]["succeeded"].sum > 0
