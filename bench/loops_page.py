"""Recurrences as Loop and Scan in Chromium, beside onnxruntime-web in the same page in turns.

A line for each model, number of steps and provider: microseconds of a step, wall clock, median of the turns; the ratio;
and of a run of ours the number of dispatches, the longest wait for a submission of a run that can be stopped, and the
milliseconds from a stop until the session is released. `error` is the largest difference from native
onnxruntime's results, as a share of the largest value. At the end: how the loop runs, or why it is not on the GPU, and
why onnxruntime-web refuses the model. On WebGPU it runs no more than 64 steps, because a run of 4096 takes it minutes;
there our time of more steps is that of a single run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from math import nan
from typing import Any

import onnxruntime
from playwright.sync_api import Error, Page

from bench import machine, models
from bench.chromium import BUILD, Chromium, build, chromium
from bench.dispatches import COUNTER, TIME, take
from bench.loop_models import build as build_loop

CONFIGURATIONS = {"wasm": ("wasm", 1), "threads": ("wasm", 2), "webgpu": ("webgpu", 1)}
LONG = 100  # milliseconds of a run that is stopped
PEER_STEPS = 64  # of onnxruntime-web on WebGPU, at most


def lines(names: Iterable[str], steps: Sequence[int], configurations: Sequence[str], seconds: float) -> None:
    """Print the lines. configurations: names of CONFIGURATIONS; seconds: of the turns of a line"""
    build(())
    infos = [(f"{name:20}{count:7}", describe(name, count), count) for name in names for count in steps]
    with chromium(built=True) as browser:
        print(heading(browser))
        for configuration in configurations:
            provider, threads = CONFIGURATIONS[configuration]
            beginning = COUNTER.read_text() if provider == "webgpu" else ""
            with browser.page(beginning=beginning) as page:  # timers of several pages would wait for each other
                _start(page, provider, threads)
                for label, info, count in infos:
                    print(f"{label}  {configuration:8}{line(page, info, count, seconds, bool(beginning))}", flush=True)


def heading(browser: Chromium) -> str:
    where = f"{machine.processor()}, load {machine.load()}, {machine.commit()}; Chromium {browser.version}, "
    columns = ("ours", "peer", "ratio", "dispatches", "wait, ms", "stop, ms", "error")
    return where + f"{browser.adapter()}\n{'us a step':37}" + "".join(f"{column:>11}" for column in columns)


def _start(page: Page, provider: str, threads: int) -> None:
    how = {"threads": threads, "provider": provider, "worker": False, "jax": False, "peer": True}
    times = page.evaluate("(how) => bench.start(how)", {**how, "tiny": models.tiny()})
    if reason := next((x for x in times.values() if isinstance(x, str)), ""):
        raise ValueError(reason)


def describe(name: str, steps: int) -> dict[str, Any]:
    """The ModelInfo of bench/page/model.js, with native onnxruntime's results."""
    model, feeds = build_loop(name, steps)
    raw = model.SerializeToString()
    own = f"{name}_{steps}"
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / f"{own}.onnx").write_bytes(raw)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])
        results = dict(zip([out.name for out in session.get_outputs()], session.run(None, feeds), strict=True))
    except Exception:  # an operator that it lacks
        results = {}
    return models.describe(own, f"/data/{own}.onnx", feeds, results)


def line(page: Page, info: dict[str, Any], steps: int, seconds: float, on_gpu: bool) -> str:
    times: dict[str, Any] = {}
    if steps <= PEER_STEPS or not on_gpu:
        effort = {"seconds": seconds, "rounds": 50}
        times = page.evaluate("([info, effort]) => bench.model(info, effort)", [info, effort])
    try:
        opened = page.evaluate("(info) => bench.open(info)", info)
    except Error as error:
        return f"  {error.message.splitlines()[0]}"
    once = page.evaluate(TIME)
    found = [
        statistics.median(times.get(whose, {}).get("samples") or [default])
        for whose, default in (("ours", once), ("peer", nan))
    ]
    ours, peer = (1e3 * x / steps for x in found)
    dispatches, wait = _submitted(page) if on_gpu else ("-", "-")
    stop = page.evaluate("(after) => bench.stop(after)", found[0] / 2) if found[0] > LONG else None
    columns = (f"{ours:.2f}", f"{peer:.2f}", f"{ours / peer:.3f}", dispatches, wait,
               "-" if stop is None else f"{stop:.1f}", f"{opened['difference']:.1e}")  # fmt: skip
    how = {node["why"] or node["loop"] for node in opened["loops"]}
    if refused := times.get("peer", {}).get("error"):
        how.add(f"onnxruntime-web: {refused}")
    return "".join(f"{column:>11}" for column in columns) + f"  {'; '.join(how)}"


def _submitted(page: Page) -> tuple[str, str]:
    """The dispatches of a run, and the longest wait of one that can be stopped. Not on threads: those that sleep do not
    answer."""
    take(page)
    page.evaluate("() => bench.again()")
    dispatches = take(page).get("dispatches", 0)
    page.evaluate("() => bench.again(true)")
    return f"{dispatches:.0f}", f"{take(page).get('longest wait', float('nan')):.1f}"
