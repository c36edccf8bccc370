"""The bench's results as text."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.compare import Row

NAME = 21


def number(value: float, digits: int = 3) -> str:
    """Three significant digits; "-" for NaN."""
    if math.isnan(value):
        return "-"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def ratio(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}x"


def share(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.0f} %"


def head(threads: int, provider: str) -> str:
    title = f"\n{threads} thread{'s' * (threads > 1)}, medians in ms, ratio = peer / ours (above 1: we are faster)"
    names = ("ours", f"ort-{provider}", "ratio", "jax-js", "ratio", "of peak", "error")
    return f"{title}\n{'model':{NAME}}" + "".join(f"{name:>11}" for name in names)


def line(row: Row, peak: float) -> str:
    jax = "cannot load" if "jax" in row.errors else number(row.times.get("jax", math.nan))
    found = row.difference.get("ours", math.nan)
    difference = "shapes" if isinstance(found, str) else "-" if math.isnan(found) else f"{found:.0e}"
    cells = [
        "failed" if "ours" in row.errors else number(row.times.get("ours", math.nan)),
        "failed" if "peer" in row.errors else number(row.times.get("peer", math.nan)),
        ratio(row.ratio()),
        jax,
        ratio(row.ratio("jax")),
        share(row.share(peak)),
        difference + " !" * row.wrong(),
    ]
    return f"{row.model:{NAME}}" + "".join(f"{cell:>11}" if len(cell) < 11 else f" {cell}" for cell in cells)


def notes(rows: list[Row]) -> str:
    """What the table has no room for."""
    out = []
    for row in rows:
        out += [f"  {row.model}: {runtime} cannot run it: {why}" for runtime, why in row.errors.items()]
        for runtime in filter(row.wrong, row.difference):
            out.append(f"  {row.model}: RESULTS of {runtime} DIFFER from those expected: {row.difference[runtime]}")
    return "\n".join(out)


def starts(rows: list[Row]) -> str:
    """Sessions: what creating one and its first run take, with one thread (the most threads, if none has one)."""
    threads = min((row.threads for row in rows), default=1)
    chosen = [row for row in rows if row.threads == threads]
    out = ["\nsession creation and first run, ms", f"{'model':{NAME}}"]
    out[-1] += "".join(f"{name:>11}" for name in ("ours", "first", "peer", "first", "jax-js", "first"))
    for row in chosen:
        cells = [
            number(part.get(name, math.nan)) for name in ("ours", "peer", "jax") for part in (row.create, row.first)
        ]
        out.append(f"{row.model:{NAME}}" + "".join(f"{cell:>11}" for cell in cells))
    medians = {
        name: statistics.median(found)
        for name in ("ours", "peer")
        if (found := [row.start[name] for row in rows if name in row.start])
    }
    out.append("start of the runtime with a tiny model, fresh profile, median: " + _medians(medians))
    return "\n".join(out)


def _medians(medians: dict[str, float]) -> str:
    return ", ".join(f"{name} {number(value)} ms" for name, value in medians.items())
