"""Runtimes side by side: measured in turns in one page, model after model, each in a fresh profile."""

from __future__ import annotations

import json
import statistics
from typing import Any

from playwright.sync_api import Error

from bench import flops, machine, models, table
from bench.chromium import BUILD, Chromium, chromium
from bench.results import Options, Row, geomean

GPU_MODELS = "bert_tiny gpt2_tiny llama_mini llama_mini.nb4 minilm mobilenet_v2 superres vit_tiny lstm_tagger".split()


def measure(browser: Chromium, name: str, threads: int, options: Options) -> Row:
    info = models.info(name)
    row = Row(name, threads, flops.total(name), info["tolerance"])
    effort = {"seconds": options.seconds, "rounds": options.rounds}
    how = {"threads": threads, "provider": options.provider, "worker": options.worker, "jax": options.jax, "peer": True}
    how["tiny"] = models.tiny()
    try:
        with browser.page() as page:
            started = page.evaluate("(how) => bench.start(how)", how)
            found = page.evaluate("([info, effort]) => bench.model(info, effort)", [info, effort])
    except Error as error:
        row.errors["ours"] = row.errors["peer"] = f"the page failed: {error.message.splitlines()[0]}"
        return row
    for runtime, time in started.items():
        if isinstance(time, str):
            row.errors[runtime] = time
        else:
            row.start[runtime] = time
    for runtime, timing in found.items():
        _take(row, runtime, timing)
    return row


def _take(row: Row, runtime: str, timing: dict[str, Any]) -> None:
    if "error" in timing:
        row.errors[runtime] = timing["error"]
        return
    row.create[runtime], row.first[runtime] = timing["create"], timing["first"]
    row.difference[runtime] = timing["difference"]
    row.times[runtime] = statistics.median(timing["samples"])
    if runtime == "ours":
        row.placement = timing.get("placement", {})


def run(options: Options) -> dict[str, Any]:
    """Return all measurements as plain data, which is also written to build/bench."""
    rows: list[Row] = []
    with chromium() as browser:
        loops = browser.peak()
        peak = max(loops.values())
        adapter = browser.adapter() if options.provider == "webgpu" else ""
        print(f"{machine.describe(browser.version)}; 128-bit peak {peak / 1e9:.1f} GFLOP/s a thread", flush=True)
        if adapter:
            print(f"adapter: {adapter}")
        for threads in options.threads:
            print(table.head(threads, options), flush=True)
            for name in options.names:
                row = measure(browser, name, threads, options)
                rows.append(row)
                print(table.line(row, peak, options), flush=True)
            print(table.notes([row for row in rows if row.threads == threads], options), flush=True)
        print(table.starts(rows, options))
        version = browser.version
    result = {**machine.identity(version), "provider": options.provider, "adapter": adapter, "peak": peak}
    result["rows"] = [vars(row) for row in rows]
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / f"latest-{options.provider}.json").write_text(json.dumps(result, indent=1))
    return result


def summary(result: dict[str, Any]) -> list[str]:
    """Return the last lines: the means of the quantised models, if there are any, then those of all."""
    rows = [Row(**row) for row in result["rows"]]
    title = f"geomean vs onnxruntime-web {result['provider']}: "
    quantised = [row for row in rows if models.is_quantised(row.model)]
    lines = ["quantised alone: " + table.means(quantised)] if quantised and len(quantised) < len(rows) else []
    return [*lines, title + (table.means(rows) if result["provider"] == "wasm" else f"{geomean(rows):.2f}")]


def warn(result: dict[str, Any]) -> int:
    """Print the models that we fail, and those that the mean leaves out. Returns the number of failures."""
    rows = [Row(**row) for row in result["rows"]]
    left_out = [row for row in rows if not row.counts()]
    for row in left_out:
        why = row.errors.get("ours") or row.errors.get("peer") or f"wrong results: {row.difference['ours']}"
        print(f"not in the mean: {row.model}, {row.threads} threads: {why}")
    return sum("ours" in row.errors or row.wrong() for row in rows)
