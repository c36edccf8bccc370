"""The bench's results as text."""

from __future__ import annotations

import math
import statistics

from bench.results import Options, Row, geomean

NAME = 26


def number(value: float, digits: int = 3) -> str:
    """Three significant digits; "-" for NaN."""
    if math.isnan(value):
        return "-"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def ratio(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}x"


def share(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.0f} %"


def threads_of(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def row_of(name: str, cells: list[str]) -> str:
    return f"{name:{NAME}}" + "".join(f"{cell:>11}" if len(cell) < 11 else f" {cell}" for cell in cells)


def head(threads: int, options: Options) -> str:
    title = f"\n{threads_of(threads)}, medians in ms, ratio = other / ours (above 1: ours is faster)"
    names = ["ours", f"ort-{options.provider}", "ratio"]
    names += ["jax-js", "ratio"] * options.jax + ["of peak"] * (options.provider == "wasm") + ["error"]
    return f"{title}\n{row_of('model', names)}"


def line(row: Row, peak: float, options: Options) -> str:
    cells = [_time(row, "ours", "failed"), _time(row, "peer", "failed"), ratio(row.ratio())]
    if options.jax:
        cells += [_time(row, "jax", "cannot load"), ratio(row.ratio("jax"))]
    if options.provider == "wasm":
        cells.append(share(row.share(peak)))
    found = row.difference.get("ours", math.nan)
    error = "shapes" if isinstance(found, str) else "-" if math.isnan(found) else f"{found:.0e}"
    return row_of(row.model, [*cells, error + " !" * row.wrong()])


def _time(row: Row, runtime: str, failed: str) -> str:
    return failed if runtime in row.errors else number(row.times.get(runtime, math.nan))


def notes(rows: list[Row], options: Options) -> str:
    """Return notes that do not fit into the table."""
    out = []
    for row in rows:
        out += [f"  {row.model}: {runtime} cannot run it: {why}" for runtime, why in row.errors.items()]
        if row.placement and (options.provider == "webgpu" or row.placement.keys() - {"wasm"}):
            calls = ", ".join(f"{count} {place}" for place, count in sorted(row.placement.items()))
            out.append(f"  {row.model}: kernel calls of ours: {calls}")
        for runtime in filter(row.wrong, row.difference):
            out.append(f"  {row.model}: RESULTS of {runtime} DIFFER from those expected: {row.difference[runtime]}")
    return "\n".join(out)


def starts(rows: list[Row], options: Options) -> str:
    """Return the times of creating a session and of its first run, with the fewest threads measured."""
    threads = min((row.threads for row in rows), default=1)
    runtimes = ["ours", "peer", *["jax"] * options.jax]
    out = [f"\nsession creation and first run, {threads_of(threads)}, ms"]
    out.append(row_of("model", [text for name in runtimes for text in (name, "first run")]))
    for row in (row for row in rows if row.threads == threads):
        cells = [part.get(name, math.nan) for name in runtimes for part in (row.create, row.first)]
        out.append(row_of(row.model, [number(cell) for cell in cells]))
    found = {name: [row.start[name] for row in rows if name in row.start] for name in runtimes[:2]}
    medians = ", ".join(f"{name} {number(statistics.median(times))} ms" for name, times in found.items() if times)
    out.append(f"a runtime's start with a session of one addition, fresh profile, median: {medians}")
    return "\n".join(out)


def means(rows: list[Row]) -> str:
    """Geometric means of the ratios by number of threads, and the lowest ratio."""
    parts = []
    for threads in sorted({row.threads for row in rows}):
        parts.append(f"{threads_of(threads)} {geomean([row for row in rows if row.threads == threads]):.2f}")
    lowest = min((row.ratio() for row in rows if row.counts()), default=math.nan)
    return f"{', '.join(parts)}; lowest {lowest:.2f}"
