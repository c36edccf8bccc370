"""Exports what sessions do to OpenTelemetry: spans of creations and runs, and metrics. It needs the package
opentelemetry-api, and an SDK that the program has set up (docs/watching.md#opentelemetry)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyruntime.errors import NotSupported
from pyruntime.session.events import on

NAME = "pyruntime"


def export_to_opentelemetry(tracer_provider: Any = None, meter_provider: Any = None) -> Callable[[], None]:
    """Export events of all sessions from now on. Returns a function that ends it.

    tracer_provider, meter_provider: by default the global ones
    Errors: NotSupported without opentelemetry-api.
    """
    try:
        from opentelemetry import metrics, trace
    except ImportError as e:
        raise NotSupported("opentelemetry-api is not installed", hint="pip install opentelemetry-api") from e
    tracer = trace.get_tracer(NAME, tracer_provider=tracer_provider)
    meter = metrics.get_meter(NAME, meter_provider=meter_provider)
    runs = meter.create_counter("pyruntime.runs", unit="{run}", description="Runs that have ended, by outcome")
    times = meter.create_histogram("pyruntime.run.duration", unit="s", description="From the call to its end")
    states = meter.create_counter("pyruntime.states", unit="{change}", description="States that sessions entered")

    def listen(event: Mapping[str, Any]) -> None:
        about = {"pyruntime.session.name": event["name"]}
        if event["type"] == "state":
            states.add(1, {**about, "pyruntime.state": event["state"]})
            return
        if event["type"] not in ("created", "run"):
            return  # an event without a duration, such as `step`
        one = {**about, "pyruntime.session.id": event["session"]}
        name = "pyruntime.create"
        if event["type"] == "run":
            name = "pyruntime.run"
            outcome = {"pyruntime.outcome": event["outcome"]}
            runs.add(1, {**about, **outcome})
            times.record(event["milliseconds"] / 1000, {**about, **outcome})
            one.update(outcome)
        start = int(1e6 * event["start"])
        span = tracer.start_span(name, start_time=start, attributes=one)
        if "error" in event:
            span.set_status(trace.StatusCode.ERROR, event["error"])
        span.end(start + int(1e6 * event["milliseconds"]))

    return on("session", listen)
